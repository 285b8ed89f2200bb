"""What the laboratory raises; apart from the modules that raise it, so that none must import another for it."""

from __future__ import annotations


class LabError(Exception):
    """The laboratory itself failed: not a result of an experiment."""
