"""Thousands of examples log nothing."""

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def silence():
    """Drop all log lines for one test."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
