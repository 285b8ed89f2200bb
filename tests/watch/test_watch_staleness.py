"""Nobody is told that all is well while the rules are old (R019, R064, R105742): ages grow, and stop growing, when
they should.

Clocks are injected. The same on real connections, with real time: the rows "half-open" and "silent" of ``make faults``.
"""

import itertools

import pytest
from watch_builders import After, Script, bookmark, error_line, follow, line, listing, service
from watch_server import raw_server

from pykubeproxy.config.options import ClientOptions
from pykubeproxy.errors import ApiError, SilentError, StreamError
from pykubeproxy.watch import client as client_module
from pykubeproxy.watch.client import connect
from pykubeproxy.watch.reflector import READ_TIMEOUT

STALE_AFTER = 180.0


def session_to(url):
    return connect(ClientOptions(master=url)).session()


def test_a_server_that_accepts_watches_only_to_break_them_is_not_heard():
    """Accepting is no sign of life when nothing ever comes of it."""
    script = Script(lists=[listing()], watches=[[error_line(code=500, message="no")]] * 40)
    reflector, _ = follow(script)
    assert reflector.status.watch_age > STALE_AFTER
    assert reflector.status.consecutive_failures >= 40


def test_a_quiet_server_without_bookmarks_is_never_stale_for_it_is_listed_anew():
    script = Script(lists=[listing()] * 10, watches=[[After(READ_TIMEOUT), SilentError("nothing")]] * 20)
    ages = []
    sleep = script.clock.sleep

    def noted(seconds):
        ages.append(script.clock.now)
        sleep(seconds)

    script.clock.sleep = noted
    reflector, _ = follow(script)
    assert reflector.status.relists >= 9
    heard = [reflector.status.last_list_at]
    assert max(later - earlier for earlier, later in itertools.pairwise(ages)) < STALE_AFTER
    assert script.clock.now - heard[0] < 2 * STALE_AFTER


def test_empty_lines_are_no_sign_of_life():
    steps = [step for _ in range(4) for step in (After(30), b"")]
    script = Script(lists=[listing()], watches=[steps, [bookmark("11"), After(2)]])
    reflector, _ = follow(script)
    assert reflector.status.consecutive_failures <= 1
    assert len(script.watches_asked) >= 2, "the watch was replaced"


def test_after_a_restore_from_a_backup_all_is_listed_anew():
    """The server's own bookmark tells that our version lies in its future: what happens until then would be missed."""
    script = Script(
        lists=[listing(version="1000"), listing(service("b", version="7"), version="9")],
        watches=[[bookmark("8")], [line("ADDED", service("c", version="10")), After(2)]],
    )
    reflector, receiver = follow(script)
    assert reflector.status.relists == 1
    assert receiver.names == ["b", "c"]


def test_events_out_of_order_do_not_leave_the_older_state():
    new, old = (service("a", version=v, cluster_ip=f"10.96.0.{v}") for v in ("12", "11"))
    script = Script(
        lists=[listing(), listing(new, version="12")],
        watches=[[line("MODIFIED", new), line("MODIFIED", old)], [After(2)]],
    )
    _, receiver = follow(script)
    assert receiver.objects["default", "a"].spec.cluster_ip == "10.96.0.12"


class TestBounds:
    """What a server sends without end takes no memory without end."""

    def serve_for_ever(self, head, piece):
        def serve(sock):
            sock.sendall(head)
            try:
                while True:
                    sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            except OSError:
                return

        return raw_server(serve)

    HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

    def test_a_list_without_end(self, monkeypatch):
        monkeypatch.setattr(client_module, "MAX_LIST", 4 << 20)
        with (
            self.serve_for_ever(self.HEAD, b'{"items":[' + b"{}," * 20000) as (url, _),
            pytest.raises(StreamError, match="longer"),
        ):
            session_to(url).list("services", {})

    def test_a_list_that_drips(self, monkeypatch):
        monkeypatch.setattr(client_module, "LIST_SECONDS", 0.0)
        with self.serve_for_ever(self.HEAD, b" ") as (url, _), pytest.raises(StreamError, match="not ended"):
            session_to(url).list("services", {})

    def test_an_event_without_end(self, monkeypatch):
        monkeypatch.setattr(client_module, "MAX_LINE", 1 << 20)
        with self.serve_for_ever(self.HEAD, b"x" * 60000) as (url, _):
            stream = session_to(url).watch("services", {}, read_timeout=10)
            with pytest.raises(StreamError, match="longer"):
                list(stream)

    def test_a_refusal_without_end(self):
        head = self.HEAD.replace(b"200 OK", b"500 Internal Server Error")
        with self.serve_for_ever(head, b"x" * 60000) as (url, _), pytest.raises(ApiError, match="500"):
            session_to(url).list("services", {})


def test_a_dead_connection_is_noticed_within_thirty_seconds():
    """net/ipv4/tcp_timer.c: the time-out is looked at when a probe is due; see SOCKET_OPTIONS."""
    options = {(level, name): value for level, name, value in client_module.SOCKET_OPTIONS}
    socket = client_module.socket
    idle, interval = (options[socket.IPPROTO_TCP, name] for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL))
    patience = options[socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT] / 1000
    checks = itertools.count(idle + interval, interval)
    assert next(at for at in checks if at >= patience) <= 30
