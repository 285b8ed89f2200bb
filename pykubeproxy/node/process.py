"""The daemon's own process: how likely the kernel is to kill it when memory is short."""

from __future__ import annotations

from pathlib import Path

import structlog

log = structlog.get_logger()


def set_oom_score_adj(value: int | None, proc: Path = Path("/proc/self")) -> bool:
    """Write the OOM score adjustment (-1000..1000, None: leave it); return whether it now stands.

    Lowering needs CAP_SYS_RESOURCE, which an unprivileged pod lacks, so a refusal is only logged (as in kube-proxy).
    """
    if value is None:
        return True
    path = proc / "oom_score_adj"
    try:
        if path.read_text(encoding="ascii").strip() != str(value):
            path.write_text(f"{value}\n", encoding="ascii")
    except OSError as error:
        log.info("oom score not set", value=value, reason=error.strerror or str(error))
        return False
    return True
