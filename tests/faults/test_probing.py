"""What the kernel lacks is found out once at the start, not again by the first sync."""

import shutil

import pytest

from tests.support.node import node

pytestmark = pytest.mark.netns

REFUSING = """\
#!/bin/sh
cp /dev/stdin "$0.$$"
case "$(cat "$0.$$")" in
*KUBE-SVC-PROBE*"-m recent "*) echo tried >> {folder}/tried;;
esac
if grep -q -e "-m comment " "$0.$$"; then echo "iptables-restore: line 1 failed" >&2; exit 1; fi
exec {real} "$@" < "$0.$$"
"""


def test_what_is_missing_is_tried_once(tmp_path):
    for name in ("iptables-nft-restore", "ip6tables-nft-restore"):
        (tmp_path / name).write_text(REFUSING.format(folder=tmp_path, real=shutil.which(name)))
        (tmp_path / name).chmod(0o755)
    with node("nft") as it:
        it.start(env={"PATH": f"{tmp_path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
        it.wait_ready()
        assert "comment" not in it.save()
        assert "KUBE-SERVICES" in it.save()
    # With all the others in one restore, then alone: in each family.
    assert (tmp_path / "tried").read_text().count("tried") == 4
