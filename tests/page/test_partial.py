"""Of a listing of a whole table only the lines about the asked chains are parsed."""

from pykubeproxy.insight.partial import _only

LISTING = b"""-P PREROUTING ACCEPT -c 1 2
-N KUBE-SEP-A
-N KUBE-SEP-AB
-A KUBE-SEP-A -c 0 0 -j DNAT --to-destination 10.0.0.1:80
-A KUBE-SEP-AB -c 0 0 -j DNAT --to-destination 10.0.0.2:80
-A PREROUTING -c 5 6 -j KUBE-SERVICES"""


def test_lines_of_the_asked_chains():
    assert _only(LISTING, ["KUBE-SEP-A", "PREROUTING", "KUBE-SEP-NONE"]).splitlines() == [
        b"-P PREROUTING ACCEPT -c 1 2",
        b"-N KUBE-SEP-A",
        b"-A KUBE-SEP-A -c 0 0 -j DNAT --to-destination 10.0.0.1:80",
        b"-A PREROUTING -c 5 6 -j KUBE-SERVICES",
    ]
