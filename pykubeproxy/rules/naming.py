"""Which Service a rule says that it belongs to: read from the comments that rules.service writes. Pure."""

from __future__ import annotations

import re

_SERVICE = re.compile(r'--comment "?([a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*(?::[a-z0-9][-a-z0-9.]*)?)')
_SERVICE_IN_WORDS = re.compile(
    r'--comment "(?:(?:masquerade|route) (?:traffic|LOCAL traffic) for|pod traffic for|other traffic to) '
    r"([a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*(?::[a-z0-9][-a-z0-9.]*)?) "
)


def service_of(text: str) -> str:
    """Return the ``namespace/name[:port]`` that a rule's or chain's comments name first, "" where none does."""
    found = _SERVICE.search(text) or _SERVICE_IN_WORDS.search(text)
    return found[1] if found is not None else ""
