"""Who may ask: bearer tokens to users, users to rights. No sockets; may be changed at any time from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from e2e.apiserver import status


@dataclass(frozen=True, slots=True)
class User:
    """A name and what it may do: pairs (verb, resource) where ``*`` means all. None: everything."""

    name: str
    rights: frozenset[tuple[str, str]] | None = None

    def may(self, verb: str, resource: str) -> bool:
        """Tell whether this user has the right."""
        if self.rights is None:
            return True
        return any(v in {"*", verb} and r in {"*", resource} for v, r in self.rights)


ADMIN = User("admin")
NOBODY = User("nobody", frozenset())
ANONYMOUS = User("system:anonymous", frozenset())


class Access:
    """The table of tokens. With no table (None) everybody may do everything."""

    def __init__(self, tokens: Mapping[str, User] | Iterable[str] | None = None) -> None:
        self._lock = threading.Lock()
        self._users: dict[str, User] | None = None
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Mapping[str, User] | Iterable[str] | None) -> None:
        """Replace the accepted tokens from the next request on; plain tokens get all rights, None opens the door."""
        if tokens is None:
            users = None
        elif isinstance(tokens, Mapping):
            users = dict(tokens)
        else:
            users = dict.fromkeys(tokens, ADMIN)
        with self._lock:
            self._users = users

    def user(self, authorization: str) -> User:
        """Return who sends this Authorization header. Raises ApiFailureError (401) for an unknown token."""
        with self._lock:
            if self._users is None:
                return ADMIN
            scheme, _, token = authorization.partition(" ")
            if not authorization:
                return ANONYMOUS
            user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise status.unauthorized()
        return user
