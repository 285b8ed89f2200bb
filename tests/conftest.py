"""Hypothesis profiles, and signals as a terminal would leave them.

HYPOTHESIS_PROFILE=long with --timeout=7200 asks ten times more than `make test` does.
"""

import os
import signal

from hypothesis import HealthCheck, settings

_COMMON = {
    # Real kernels and two busy cores: time says nothing here.
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("default", max_examples=100, **_COMMON)
settings.register_profile("long", max_examples=1000, **_COMMON)
settings.register_profile("quick", max_examples=10, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# A shell without job control starts what runs in its background with SIGINT ignored, nohup with SIGHUP, and every child
# inherits that: a program that a test interrupts would go on for ever. What is handled here is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
