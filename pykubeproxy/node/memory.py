"""The daemon's own memory: what was needed for a moment is given back, and what stays is not looked through again.

Most of what a first sync builds stays for the life of the process, so the cyclic garbage collector would only look
through it again and again (a quarter of the sync's CPU at 5,000 services). And the C library keeps what was freed: the
answer of a list, an input of megabytes.
"""

from __future__ import annotations

import ctypes
import gc


def begin() -> None:
    """Put off the collection of cycles until ``settle``."""
    gc.disable()


def settle() -> None:
    """Say that what there is now will stay: collect once, then never look through it again; give free memory back."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.enable()
    give_back()


def give_back() -> None:
    """Give free memory back to the kernel, where the C library can do that (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
