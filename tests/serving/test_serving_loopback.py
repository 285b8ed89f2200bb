"""What is for this machine alone: by the client's address, and by the name that it asked under."""

import pytest

from pykubeproxy.serving.loopback import from_this_machine
from pykubeproxy.serving.message import Request, plain


@pytest.mark.parametrize(
    ("client", "server", "host", "status"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1:10249", 200),
        ("::1", "::1", "[::1]:10249", 200),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "localhost:10249", 200),
        ("10.0.0.11", "10.0.0.11", "10.0.0.11:10249", 200),
        ("127.0.0.1", "127.0.0.1", "evil.example:10249", 421),
        ("10.0.0.11", "10.0.0.11", "evil.example:10249", 421),
        ("10.0.0.99", "10.0.0.11", "localhost:10249", 403),
        ("10.0.0.99", "10.0.0.11", "10.0.0.11:10249", 403),
        ("", "", "localhost", 403),
    ],
)
def test_who_is_answered(client, server, host, status):
    handler = from_this_machine(lambda _: plain("ok"))
    assert handler(Request("GET", "/", headers={"host": host}, client=client, server=server)).status == status
