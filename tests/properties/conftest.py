"""Thousands of examples log nothing, and few services are enough to make trees of all depths."""

import logging

import pytest
import structlog

from pykubeproxy.rules.dispatch import AddressSpace, PortSpace


@pytest.fixture(autouse=True)
def silence():
    """Drop all log lines for one test."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    """Divide a chain of a tree as soon as it has three rules."""
    for space in (AddressSpace, PortSpace):
        monkeypatch.setattr(space, "leaf_size", 2)
