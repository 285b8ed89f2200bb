"""The exception tree of the whole package.

PykubeproxyError
├── UsageError            a flag or argument that makes no sense (exit 2)
├── ConfigurationError    a configuration document that does not load or validate (exit 2)
├── NothingFound          explain or trace is asked about something that is not there (exit 1, where all else is 2)
├── EnvironmentProblem    the machine lacks something: rights, a program, a kernel feature (exit 1)
├── ApiError              the API server answered something that cannot be used
│   ├── GoneError         410: the resource version is too old, list again
│   ├── SilentError       nothing came within the read timeout on a connection that stands
│   └── StreamError       what came cannot be read, so something may have been missed: list again
└── NetfilterError        reading or writing the kernel's rules failed
    ├── LockBusyError     another program holds the xtables lock; nothing else may be concluded
    ├── UnreadableTable   the save output of a table cannot be trusted
    ├── KilledError       iptables-restore was killed: neither taken nor refused
    └── RestoreError      iptables-restore refused an input
"""

from __future__ import annotations


class PykubeproxyError(Exception):
    """Anything that this package raises on purpose. ``str()`` is one clear line."""

    exit_status = 1


class UsageError(PykubeproxyError):
    """A flag or argument that makes no sense; ``command`` is the subcommand that was given it, if one was."""

    exit_status = 2
    command = ""


class ConfigurationError(PykubeproxyError):
    """A configuration that does not load or validate; ``problems`` holds one line per fault."""

    exit_status = 2

    def __init__(self, problems: list[str] | str) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("; ".join(self.problems))


class NothingFound(PykubeproxyError):
    """What explain or trace is asked about is not there: an answer, as "they differ" is one of diff."""


class EnvironmentProblem(PykubeproxyError):
    """The machine lacks something that is needed; the message says what to do."""


class ApiError(PykubeproxyError):
    """The API server answered with a failure; ``code`` is the HTTP status or that of a Status object (0: none)."""

    def __init__(self, message: str, code: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class GoneError(ApiError):
    """The asked resource version has been compacted away (410): list again."""


class SilentError(ApiError):
    """The API server let the read timeout pass without a byte, on a connection that stands."""


class StreamError(ApiError):
    """What came on a watch or as a list cannot be read, so that something may have been missed: list again."""


class NetfilterError(PykubeproxyError):
    """Reading or writing the kernel's rules failed."""


class LockBusyError(NetfilterError):
    """Another program holds the xtables lock. It says nothing about the state of the rules."""


class KilledError(NetfilterError):
    """iptables-restore was killed by a signal. What it was given may stand or not, and nothing is wrong with it."""


class UnreadableTable(NetfilterError):
    """iptables-save cannot print a table truthfully (native nft rules in it)."""


class RestoreError(NetfilterError):
    """iptables-restore refused an input.

    ``line`` is the 1-based number of the refused line in that input, None where stderr names none.
    """

    def __init__(self, message: str, *, status: int, stderr: str, document: str, line: int | None) -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr
        self.document = document
        self.line = line
