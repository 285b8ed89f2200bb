"""kube-dns over both protocols, and a name resolved through it."""

from __future__ import annotations

import json
from functools import partial

from e2e.demo.stage import NGINX, Stage

TITLE = "kube-dns over UDP and TCP, and a name resolved through it"
DNS = "10.96.0.10"
NAME = "nginx-svc.default.svc.cluster.local"


def run(stage: Stage) -> None:
    """Ask the cluster's DNS address as a pod does."""
    rows = []
    stage.show.say(f"{NAME}?  asked by pod curl")
    for tcp in (False, True):
        proto = "TCP" if tcp else "UDP"
        found, way = stage.watch(partial(stage.curl.dns, DNS, NAME, tcp=tcp))
        who = stage.curl.dns(DNS, "whoami", "TXT", tcp=tcp)
        told = json.loads(who.values[0]) if who.values else {"pod": "nobody", "source": ""}
        rows.append((f"{DNS}:53 {proto}", " ".join(found.values) or found.failure, told["pod"], told["source"]))
        stage.check(
            found.values == [NGINX] and (told["pod"], told["source"]) == ("kube-dns", stage.curl.ip),
            f"{proto}: the name is {NGINX}, kube-dns answered, it saw {stage.curl.ip}",
        )
        stage.check(way.destinations() == {"10.244.2.2:53": 1}, f"{proto}: the question went to 10.244.2.2:53")
    stage.show.table(["asked", "answer", "by", "saw"], rows)
    stage.show.command("curl http://nginx-svc/            (in pod curl; nameserver 10.96.0.10)")
    addresses = stage.curl.resolve("nginx-svc")
    stage.check(addresses == [NGINX], f"the C library resolves nginx-svc: {' '.join(addresses) or 'nothing'}")
    pods = stage.curl.http(addresses[0], 80).pods if addresses else {}
    stage.check(pods == {"nginx-1": 1}, "and what it resolves to answers")
    missing = stage.curl.dns(DNS, "nowhere.default.svc.cluster.local")
    stage.check(missing.code == 3, "control: a name that is not there is NXDOMAIN")
