"""The API server, as far as a service proxy needs it: lists, watches, and posting Events.

The only module that imports ``kubernetes``, which does configuration, TLS, tokens and proxies. That import costs about
0.2 s and 36 MB whatever is taken from it, so import this module only where an API server is really used. It must not
decode objects, retry (but once, for a rotated token) or sleep: that is the reflector's business.

The client library's Watch, informer and models are left alone: no read timeout, no back-off, 30 times the cost.
What it reads once and we read again: the token file (at each request: kubelet replaces it about hourly), the
kubeconfig, CA and client certificate (by their stat, and after a 401). CA files are loaded for each new connection.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import structlog
from kubernetes.client import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader
from urllib3 import BaseHTTPResponse, disable_warnings
from urllib3.exceptions import HTTPError, InsecureRequestWarning

from pykubeproxy import __version__
from pykubeproxy.config.addresses import url_fault
from pykubeproxy.config.options import ClientOptions
from pykubeproxy.errors import ApiError, ConfigurationError, GoneError, StreamError
from pykubeproxy.watch import kubeconfig
from pykubeproxy.watch.decode import decode_status, excerpt, status_error
from pykubeproxy.watch.source import Resource
from pykubeproxy.watch.transport import failure

log = structlog.get_logger(__name__)

PATHS: dict[Resource, str] = {
    "services": "/api/v1/services",
    "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
    "nodes": "/api/v1/nodes",
}
CONNECT_TIMEOUT = 10.0
LIST_TIMEOUT = 60.0
"""Seconds between two pieces of a list: the server itself gives a request up after 60 s."""
LIST_SECONDS = 300.0
"""Seconds that a whole list (or one page of it) may take: one that drips on for ever blinds the node."""
MAX_LIST = 512 << 20
"""Bytes of one list, unpacked: ten times what 5,000 services and 150,000 endpoints take. More is a fault."""
MAX_LINE = 32 << 20
"""Bytes of one watch event. etcd refuses objects over 1.5 MiB, so more is no event but a fault."""
_CHUNK = 64 << 10
_MAX_REFUSAL = 64 << 10

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    # A quiet connection is asked after 10 s, and again every 5 s. The time-out is looked at only when a probe is due
    # (net/ipv4/tcp_timer.c, tcp_keepalive_timer): a dead one ends 25 s after its last packet, within the 30 s promised.
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    # The same for what is sent and not acknowledged.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000),
]

_UNUSABLE = (
    ConfigException,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    HTTPError,
    ApiException,
)
"""What the library raises on a configuration that is none, or while it fetches credentials."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """One reading of the configuration. ``configuration`` is the library's, ready for a connection pool."""

    configuration: Configuration
    token_file: str
    files: tuple[str, ...]
    """Files that the configuration was made of, the token file excepted."""
    stamp: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    what: str
    """Names the request in errors."""
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    read_timeout: float = CONNECT_TIMEOUT


class Access:
    """Where the API server is and who we are: read from files, and read again when they change.

    Threads: any; one lock.
    """

    def __init__(
        self, options: ClientOptions, *, environ: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT
    ) -> None:
        """Read the configuration; raises ConfigurationError when it is missing or makes no sense."""
        self._options = options
        self._environ = environ
        self._service_account = service_account
        self._lock = threading.Lock()
        self._token = ""
        self._settings = self._read()
        self.generation = 0
        """Counts readings: a session makes its connections anew when it has moved on."""

    @property
    def server(self) -> str:
        """The server's URL."""
        return str(self._settings.configuration.host).rstrip("/")

    def current(self) -> tuple[int, Configuration]:
        """Return the configuration, read again if its files have changed, and its generation."""
        with self._lock:
            self._refresh()
            return self.generation, self._settings.configuration

    def reload(self) -> None:
        """Read everything again: the server does not know us any more."""
        with self._lock:
            self._reload()

    def authorization(self) -> str | None:
        """Return the Authorization header. A token file is read at each call; if that fails its last content holds."""
        with self._lock:
            self._refresh()
            settings = self._settings
            if not settings.token_file:
                try:
                    value = settings.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
                except Exception as error:  # a credential plugin that is asked again, and may fail in its own ways
                    raise ApiError(f"credentials cannot be refreshed: {' '.join(str(error).split())}") from error
                return str(value).strip() if value else None
            try:
                token = Path(settings.token_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                log.warning("token file unreadable, last token used", file=settings.token_file, error=str(error))
                token = ""
            self._token = token or self._token
            return f"Bearer {self._token}" if self._token else None

    def _refresh(self) -> None:
        if _stamp(self._settings.files) != self._settings.stamp:
            self._reload()

    def _reload(self) -> None:
        try:
            self._settings = self._read()
        except ConfigurationError as error:
            # Half-written perhaps; what was read before may still work, and the files are looked at again next time.
            log.warning("API client configuration cannot be read, the last one is used", error=str(error))
        else:
            self.generation += 1
            log.info("API client configuration read", server=self.server)

    def _read(self) -> _Settings:
        configuration = Configuration()
        token_file = ""
        files: tuple[str, ...] = ()
        options = self._options
        where = f"kubeconfig {options.kubeconfig}" if options.kubeconfig else "in-cluster configuration"
        try:
            if options.kubeconfig:
                token_file, files = self._from_kubeconfig(configuration)
            elif not options.master:
                token_file, files = self._from_cluster(configuration)
        except _UNUSABLE as error:
            said = " ".join(str(error).split()) or type(error).__name__
            hint = "" if options.kubeconfig else " (outside a cluster give --kubeconfig or --master)"
            raise ConfigurationError(f"{where}: {said}{hint}") from error
        server = options.master or configuration.host
        if fault := url_fault(server):
            raise ConfigurationError(f"{'--master' if options.master else f'{where}: server'} {server!r} {fault}")
        _set_host(configuration, server)
        if not configuration.verify_ssl:
            log.warning("the API server's certificate is not checked", server=configuration.host)
            disable_warnings(InsecureRequestWarning)  # urllib3's own, at each request
        configuration.retries = False
        configuration.socket_options = SOCKET_OPTIONS
        configuration.connection_pool_maxsize = 1
        certificates = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        files = (*files, *(str(file) for file in certificates if file))
        return _Settings(configuration, token_file, files, _stamp(files))

    def _from_kubeconfig(self, configuration: Configuration) -> tuple[str, tuple[str, ...]]:
        path = Path(self._options.kubeconfig)
        active = kubeconfig.read(path, needs_server=not self._options.master)
        load_kube_config(  # type: ignore[no-untyped-call]
            str(path), client_configuration=configuration, persist_config=False
        )
        if active.cluster.get("proxy-url"):
            configuration.no_proxy = ""  # a proxy that is named for this cluster is meant for it
        token_file = active.user.get("tokenFile")
        if not token_file:
            return "", (str(path),)
        # As in client-go: the file counts, the token is for when it is unreadable.
        self._token = active.user.get("token") or ""
        return str(path.parent / token_file), (str(path),)

    def _from_cluster(self, configuration: Configuration) -> tuple[str, tuple[str, ...]]:
        token_file = str(self._service_account / "token")
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
            token_file, str(self._service_account / "ca.crt"), try_refresh_token=False, environ=self._environ
        )
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        return token_file, ()


def _set_host(configuration: Configuration, server: str) -> None:
    """Set the server's URL; without a scheme it is https where there are certificates, as client-go has it."""
    host = server.rstrip("/")
    if "://" not in host:
        has_tls = configuration.ssl_ca_cert or configuration.cert_file or not configuration.verify_ssl
        host = f"{'https' if has_tls else 'http'}://{host}"
    configuration.host = host
    refresh = configuration.refresh_api_key_hook
    if refresh is not None:

        def refresh_and_keep_host(target: Configuration) -> None:
            refresh(target)  # writes the kubeconfig's server as well as its token
            target.host = host

        configuration.refresh_api_key_hook = refresh_and_keep_host


def _stamp(files: tuple[str, ...]) -> tuple[object, ...]:
    def one(file: str) -> object:
        try:
            found = os.stat(file)  # noqa: PTH116 - follows the links of a ConfigMap or Secret volume
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    return tuple(one(file) for file in files)


class ApiClient:
    """The API server. Hands out sessions, one for each thread that talks to it; posts Events on one of its own."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._own = ApiSession(access)

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._access.server

    @property
    def server_host(self) -> str:
        """Host name or address of the server: a ClusterIP here means that we reach the server through our own rules."""
        return urlsplit(self.server).hostname or ""

    def session(self) -> ApiSession:
        """Return a new connection's worth of client."""
        return ApiSession(self._access)

    def post_event(self, event: Mapping[str, Any]) -> None:
        """Create a core/v1 Event in the namespace that its metadata names. One thread at a time; raises ApiError."""
        namespace = event["metadata"]["namespace"]
        self._own.send("POST", f"/api/v1/namespaces/{namespace}/events", event)

    def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge ``patch`` into an Event that exists. One thread at a time; raises ApiError."""
        self._own.send("PATCH", f"/api/v1/namespaces/{namespace}/events/{name}", patch)

    def close(self) -> None:
        """End calls in progress on the own connection. Sessions are closed by those who asked for them."""
        self._own.abort()
        self._own.close()


def connect(
    options: ClientOptions, *, environ: Mapping[str, str] | None = None, service_account: Path = SERVICE_ACCOUNT
) -> ApiClient:
    """Read the configuration as kube-proxy does: --kubeconfig and --master, or neither for in-cluster.

    Nothing is sent. Raises ConfigurationError.
    """
    return ApiClient(
        Access(options, environ=os.environ if environ is None else environ, service_account=service_account)
    )


class ApiSession:
    """One connection to the API server, kept open between requests. One thread uses it; any may abort it.

    Implements :class:`pykubeproxy.watch.reflector.Session`.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._aborted = False
        self._generation = -1
        self._rest: RESTClientObject | None = None

    def list(self, resource: Resource, params: Mapping[str, str]) -> bytearray:
        """Return the body of a list."""
        request = _Request(
            "GET",
            PATHS[resource],
            f"list {resource}",
            params,
            headers={"Accept-Encoding": "gzip"},  # the server uses it above 128 KiB: a tenth of the bytes
            read_timeout=LIST_TIMEOUT,
        )
        response = self._accepted(request)
        body = bytearray()
        with self._reading(response, request):
            limit = time.monotonic() + LIST_SECONDS
            while chunk := response.read(_CHUNK):
                body += chunk
                if len(body) > MAX_LIST:
                    raise StreamError(f"{request.what}: the list is longer than {MAX_LIST >> 20} MiB")
                if time.monotonic() > limit:
                    raise StreamError(f"{request.what}: the list has not ended within {LIST_SECONDS:g} s")
        return body

    def watch(self, resource: Resource, params: Mapping[str, str], *, read_timeout: float) -> WatchStream:
        """Begin a watch; return once the server has accepted it. Lines that exceed 32 MiB are a StreamError."""
        request = _Request(
            "GET",
            PATHS[resource],
            f"watch {resource}",
            params,
            headers={"Accept-Encoding": "identity"},
            read_timeout=read_timeout,
        )
        response = self._accepted(request)
        return WatchStream(response, request.what, self._reading(response, request))

    def send(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        """Send a JSON document; the answer is dropped."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = _Request(method, path, f"{method} {path}", headers={"Content-Type": kind}, body=body)
        response = self._accepted(request)
        with self._reading(response, request):
            while response.read(_CHUNK):
                pass

    def abort(self) -> None:
        """Make the request in progress, and all later ones, fail at once."""
        with self._lock:
            self._aborted = True
            open_now = list(self._sockets)
        for sock in open_now:
            _shut(sock)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            rest, self._rest = self._rest, None
        if rest is not None:
            rest.close()

    def _accepted(self, request: _Request) -> BaseHTTPResponse:
        """Return the response to a request that the server accepts; raise ApiError or GoneError otherwise."""
        used = self._access.authorization()
        response = self._send(request, used)
        if response.status == 401 or (response.status == 403 and used is None):
            # The token was replaced, or the client certificate behind a kept connection, or a credential plugin failed
            # and left us anonymous: read all again, try once.
            refused = self._refused(request, response)
            self._access.reload()
            self.close()
            now = self._access.authorization()
            if now == used and not self._access.current()[1].cert_file:
                raise refused
            response = self._send(request, now)
        if not 200 <= response.status <= 299:
            raise self._refused(request, response)
        return response

    def _send(self, request: _Request, authorization: str | None) -> BaseHTTPResponse:
        rest, host = self._client()
        headers = {"Accept": "application/json", "User-Agent": f"pykubeproxy/{__version__}", **request.headers}
        if authorization:
            headers["Authorization"] = authorization
        query = f"?{urlencode(request.params)}" if request.params else ""
        try:
            answer = rest.request(  # type: ignore[no-untyped-call]
                request.method,
                host + request.path + query,
                headers=headers,
                body=request.body,
                _request_timeout=(CONNECT_TIMEOUT, request.read_timeout),
            )
        except (HTTPError, ApiException, HTTPException, OSError, ValueError) as error:
            raise failure(request.what, error, host, request.read_timeout) from error
        response: BaseHTTPResponse = answer.response
        return response

    def _refused(self, request: _Request, response: BaseHTTPResponse) -> ApiError:
        what = request.what
        error: ApiError | None = None
        with suppress(ApiError), self._reading(response, request):
            body = response.read(_MAX_REFUSAL)
            error = refusal(what, response.status, response.reason or "", response.headers.get("Retry-After"), body)
            if len(body) == _MAX_REFUSAL:
                raise ApiError(what)  # there is more to come: the connection cannot be used again
        return error or ApiError(f"{what}: {response.status} {response.reason}", code=response.status)

    def _reading(self, response: BaseHTTPResponse, request: _Request) -> _Reading:
        return _Reading(response, request, self._access.server)

    def _client(self) -> tuple[RESTClientObject, str]:
        generation, configuration = self._access.current()
        with self._lock:
            if self._aborted:
                raise ApiError("the client is stopped")
            if self._rest is None or generation != self._generation:
                if self._rest is not None:
                    self._rest.close()
                self._rest = RESTClientObject(configuration)
                manager = self._rest.pool_manager
                manager.pool_classes_by_scheme = {
                    scheme: _noticing(pool, self._notice) for scheme, pool in manager.pool_classes_by_scheme.items()
                }
                self._generation = generation
            return self._rest, configuration.host.rstrip("/")

    def _notice(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.add(sock)
            aborted = self._aborted
        if aborted:
            _shut(sock)


def _noticing(pool: Any, notice: Callable[[socket.socket], None]) -> Any:
    """Derive a pool whose connections tell their sockets, so that another thread can shut them."""

    def connect(self: Any) -> None:
        pool.ConnectionCls.connect(self)
        notice(self.sock)

    connection = type(pool.ConnectionCls.__name__, (pool.ConnectionCls,), {"connect": connect})
    return type(pool.__name__, (pool,), {"ConnectionCls": connection})


def refusal(what: str, code: int, reason: str, retry_after: str | None, body: bytes) -> ApiError:
    """Turn an HTTP answer that is no success into an error; its body is a Status, or anything that a proxy may say."""
    status = decode_status(body)
    said = status_error(status, f"{code} {reason}: {excerpt(body)}".rstrip(": "))
    seconds = said.retry_after
    if retry_after is not None and retry_after.strip().isdigit():
        seconds = float(retry_after)
    is_gone = code == 410 or isinstance(said, GoneError)
    text = str(said) if str(code) in str(said) else f"{code} {said}"
    return (GoneError if is_gone else ApiError)(f"{what}: {text}", code=code, retry_after=seconds)


def _shut(sock: Any) -> None:
    sock = getattr(sock, "socket", sock)  # TLS within a TLS proxy
    with suppress(OSError, TypeError):
        # Not SSLSocket's own shutdown: that takes the TLS state away from under the thread that is reading.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Reading:
    """Reads one response: maps failures, and gives the connection back if it was read to its end, else closes it."""

    def __init__(self, response: BaseHTTPResponse, request: _Request, server: str) -> None:
        self._response = response
        self._request = request
        self._server = server

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._response.release_conn()
            return
        self._response.close()
        if isinstance(error, HTTPError | HTTPException | OSError | ValueError):
            raise failure(self._request.what, error, self._server, self._request.read_timeout) from error


class WatchStream:
    """The lines of an accepted watch. Bytes are cut at line ends only, so no character is ever torn."""

    def __init__(self, response: BaseHTTPResponse, what: str, reading: _Reading) -> None:
        self._response = response
        self._what = what
        self._reading = reading

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines; a last one without a line end was cut off and is dropped. Raises ApiError and its kinds."""
        return self._lines()

    def _lines(self) -> Iterator[bytes]:
        pending = bytearray()
        with self._reading:
            while chunk := self._response.read1(_CHUNK):
                seen = len(pending)
                pending += chunk
                if b"\n" not in chunk:
                    if len(pending) > MAX_LINE:
                        raise StreamError(f"{self._what}: an event is longer than {MAX_LINE >> 20} MiB")
                    continue
                end = pending.rindex(b"\n", seen)
                whole, pending = pending[:end], pending[end + 1 :]
                yield from bytes(whole).split(b"\n")

    def close(self) -> None:
        """Close the connection unless the stream was read to its end, in which case it has been given back."""
        self._response.close()
