"""nfacct objects on the real kernel, and the lists of xt_recent."""

import errno

import pytest
from node_netns import Namespace

from pykubeproxy.node import nfacct
from pykubeproxy.node.nfacct import COUNTERS, INVALID_DROPPED, Count, RecentLists, recent_lists


@pytest.mark.netns
def test_objects_are_made_once_count_and_are_never_reset():
    with Namespace() as namespace:
        namespace.assert_isolated()
        assert namespace.call(nfacct.read) == {}
        assert namespace.call(nfacct.ensure) == set(COUNTERS)
        namespace.run("iptables", "-A", "OUTPUT", "-m", "nfacct", "--nfacct-name", INVALID_DROPPED)
        namespace.run("ping", "-c", "1", "-W", "1", "127.0.0.1", check=False)
        namespace.run("sh", "-c", "echo x > /dev/udp/127.0.0.1/9 || true", check=False)
        namespace.run("bash", "-c", "echo x > /dev/udp/127.0.0.1/9", check=False)
        first = namespace.call(nfacct.read)
        assert first[INVALID_DROPPED].packets > 0
        assert namespace.call(nfacct.ensure) == set(COUNTERS)
        assert namespace.call(nfacct.read) == first


@pytest.mark.netns
def test_objects_of_others_are_read_too():
    with Namespace() as namespace:
        namespace.assert_isolated()
        assert namespace.call(nfacct.ensure, ["somebody-elses"]) == {"somebody-elses"}
        namespace.call(nfacct.ensure)
        assert namespace.call(nfacct.read) == dict.fromkeys((*COUNTERS, "somebody-elses"), Count(0, 0))


def test_a_kernel_without_netlink_netfilter_means_no_objects(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPROTONOSUPPORT, "no")

    monkeypatch.setattr(nfacct, "NetlinkSocket", refuse)
    assert (nfacct.ensure(), nfacct.read()) == (frozenset(), {})


def test_a_name_that_the_kernel_would_cut_is_refused():
    with pytest.raises(ValueError, match="longer than 31"):
        nfacct.ensure(["x" * 32])


def recent_root(tmp_path, lists, limit="100"):
    parameters = tmp_path / "sys/module/xt_recent/parameters"
    parameters.mkdir(parents=True)
    (parameters / "ip_list_tot").write_text(f"{limit}\n")
    (tmp_path / "net/xt_recent").mkdir(parents=True)
    for name, size in lists.items():
        (tmp_path / "net/xt_recent" / name).write_text("src=10.0.0.1 ttl: 64\n" * size)
    return recent_lists(sys=tmp_path / "sys", proc_net=tmp_path / "net")


def test_full_lists_are_named(tmp_path):
    lists = recent_root(tmp_path, {"KUBE-SEP-A": 2, "KUBE-SEP-B": 1, "KUBE-SEP-C": 0, "DEFAULT": 9}, limit="2")
    assert lists == RecentLists(2, {"KUBE-SEP-A": 2, "KUBE-SEP-B": 1, "KUBE-SEP-C": 0})
    assert lists.full == {"KUBE-SEP-A"}


def test_without_the_module_nothing_is_known(tmp_path):
    lists = recent_lists(sys=tmp_path, proc_net=tmp_path)
    assert (lists.limit, lists.sizes, lists.full) == (None, {}, frozenset())


@pytest.mark.netns
def test_kernel_list_of_an_affinity_rule():
    with Namespace() as namespace:
        namespace.assert_isolated()
        rule = "-p udp --dport 9 -m recent --name KUBE-SEP-TEST --set"
        namespace.run("iptables", "-A", "OUTPUT", *rule.split())
        namespace.run("bash", "-c", "echo x > /dev/udp/127.0.0.1/9")
        lists = namespace.call(recent_lists)
        assert lists.sizes == {"KUBE-SEP-TEST": 1}
        assert lists.limit > 0
