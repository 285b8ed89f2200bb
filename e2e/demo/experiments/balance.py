"""Three pods get a third each."""

from __future__ import annotations

import re
from functools import partial

from e2e.demo.stage import NGINX, PODS, Stage
from e2e.netlab import chi_square

TITLE = "Scaled to three pods: a third each"
CONNECTIONS = 3000
SUSPICIOUS = 0.001


def run(stage: Stage) -> None:
    """See the probabilities and the balance they make, and test it."""
    service, addresses = "default/nginx-svc", [f"{ip}:80" for ip in PODS.values()]
    stage.apply_and_await("03-three-pods", service, addresses)
    saved = stage.lab.save()
    portal = saved.find(f'"{service} cluster IP"', "-j KUBE-SVC-")[0][1]
    jumps = [rule for rule in saved.chain("nat", portal.target) if rule.target.startswith("KUBE-SEP-")]
    shares = [(re.search(r"--probability (\S+)", rule.text) or [None, ""])[1] for rule in jumps]
    stage.show.table(
        ["rule", "probability", "leads to"],
        [
            (str(number), share or "(none: the rest)", saved.chain("nat", rule.target)[-1].destination)
            for number, (rule, share) in enumerate(zip(jumps, shares, strict=True), start=1)
        ],
    )
    stage.check(shares == ["0.33333333349", "0.50000000000", ""], "the kernel holds 0.33333333349, 0.5 and none")

    for attempt in (1, 2):  # an honest balance fails this once in 1,000 times: such a failure must happen twice
        connections = CONNECTIONS * attempt
        traffic, way = stage.watch(partial(stage.curl.http, NGINX, 80, n=connections, concurrency=16))
        counts = {name: traffic.pods[name] for name in PODS}
        stage.show.say(f"{connections:,} new connections from pod curl:")
        stage.show.bars(counts)
        statistic, chance = chi_square(list(counts.values()))
        if chance >= SUSPICIOUS or traffic.failures:
            break
    stage.check(not traffic.failures and len(traffic.answers) == connections, "every connection was answered")
    stage.check(
        chance >= SUSPICIOUS, f"chi-square {statistic:.2f}, p = {chance:.3f}: an even balance (p ≥ {SUSPICIOUS})"
    )
    stage.check(
        way.destinations() == {f"{PODS[name]}:80": count for name, count in counts.items()},
        "the rules' counters tell the same numbers",
    )
    stage.apply_and_await("00-cluster", service, [f"{PODS['nginx-1']}:80"])
