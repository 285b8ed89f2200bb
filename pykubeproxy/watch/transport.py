"""What went wrong on the way to the API server, as one plain sentence.

It exists because urllib3, http.client, ssl and the kernel each have their own words, nested in each other, and an
operator at night wants one: refused, not resolved, not trusted, silent. The only place that knows those words. It must
not decide what to do about a failure, and never repeats a header: one of them is the token.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
import ssl

from urllib3 import exceptions as urllib3

from pykubeproxy.errors import ApiError, SilentError

_KERNEL = {
    errno.ECONNREFUSED: "connection refused at {server}",
    errno.ECONNRESET: "the connection to {server} was reset",
    errno.EPIPE: "{server} closed the connection",
    errno.ETIMEDOUT: "{server} does not answer: the connection timed out",
    errno.EHOSTUNREACH: "no route to {server}",
    errno.ENETUNREACH: "no network leads to {server}",
}


def failure(what: str, error: BaseException, server: str, timeout: float) -> ApiError:
    """Return what a failed request raises: ``what`` was asked of ``server``, which had ``timeout`` seconds a read."""
    chain = _chain(error)
    said = next((said for one in chain if (said := _sentence(one, server))), "")
    if any(isinstance(one, urllib3.ReadTimeoutError) for one in chain):
        return SilentError(f"{what}: {said or f'no answer within {timeout:g} s from {server}'}")
    said = said or " ".join(str(error).split())[:200] or type(error).__name__
    is_proxy = any(isinstance(one, urllib3.ProxyError) for one in chain)
    return ApiError(f"{what}: {'through the proxy: ' if is_proxy else ''}{said}")


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and what lies inside it, the innermost first."""
    seen: list[BaseException] = []
    todo: list[object] = [error]
    while todo:
        one = todo.pop(0)
        if isinstance(one, BaseException) and one not in seen:
            seen.append(one)
            todo += [getattr(one, "reason", None), *one.args, one.__cause__, one.__context__]
    return seen[::-1]


def _sentence(error: BaseException, server: str) -> str:
    """Say what one error means; "" where it says nothing by itself."""
    said = ""
    match error:
        case ssl.SSLCertVerificationError():
            said = f"certificate verify failed: {error.verify_message or error.reason} ({server})"
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            said = f"{server} closed the connection during TLS"
        case ssl.SSLError():
            said = f"TLS with {server} failed: {_plain_ssl(error)}"
        case socket.gaierror():
            said = f"the host name of {server} cannot be resolved ({str(error.strerror).lower()})"
        case urllib3.ConnectTimeoutError():
            said = f"no connection to {server} in time"
        case http.client.RemoteDisconnected():
            said = f"{server} closed the connection without an answer"
        case http.client.IncompleteRead() | urllib3.IncompleteRead() | urllib3.InvalidChunkLength():
            said = f"the answer of {server} broke off"
        case http.client.HTTPException():
            said = f"what {server} answers is no HTTP"
        case urllib3.DecodeError():
            said = f"the answer of {server} cannot be unpacked"
        case ValueError() if isinstance(error, UnicodeError) or "header value" in str(error):
            said = "the token holds characters that no HTTP header may carry"
        case TimeoutError() if "handshake" in str(error):
            said = f"the TLS handshake with {server} has not ended in time"
        case OSError(filename=str(file), strerror=str(text)):
            said = f"{file}: {text.lower()}"
        case OSError(errno=int(number)):
            said = _KERNEL.get(number, f"{os.strerror(number).lower()} at {{server}}").format(server=server)
        case _:
            pass
    return said


def _plain_ssl(error: ssl.SSLError) -> str:
    reason = (error.reason or "").replace("_", " ").lower()
    return f"{reason}, is it https?" if reason == "wrong version number" else reason or str(error)
