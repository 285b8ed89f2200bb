"""sessionAffinity ClientIP: a client stays with its pod, until time runs out or the pod is gone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from e2e.demo.stage import NGINX, PODS, Stage

TITLE = "sessionAffinity ClientIP: one client, one pod"
CLIENTS = 30
"""So many that "all of them happen to stay" has a chance of 3⁻³⁰."""
SERVICE = "default/nginx-svc"


def run(stage: Stage) -> None:
    """See clients stick, move after the timeout, and move when their pod goes."""
    clients = stage.lab.client_addresses(CLIENTS)
    stage.apply_and_await("03-three-pods", SERVICE, [f"{ip}:80" for ip in PODS.values()])
    _set_timeout(stage, "04-affinity", 10800)

    first = _ask(stage, clients)
    again = [_ask(stage, clients) for _ in range(4)]
    stage.show.say(f"{CLIENTS} outside clients, 5 connections each:")
    _show(stage, first)
    stage.check(all(first.values()) and all(turn == first for turn in again), "every client kept its pod, 5 times of 5")
    stage.check(len(set(first.values())) > 1, "different clients have different pods")

    _set_timeout(stage, "04-affinity-short", 1)
    before = _ask(stage, clients)
    time.sleep(2.1)  # not for anything to converge: this is the timeout that is under test
    after = _ask(stage, clients)
    moved = [client for client in clients if before[client] != after[client]]
    stage.show.say(f"timeoutSeconds 1, then two seconds of silence: {len(moved)} of {CLIENTS} clients have another pod")
    stage.check(all(after.values()) and moved, "after the timeout a client may get another pod")

    _set_timeout(stage, "04-affinity", 10800)
    before = _ask(stage, clients)
    rest = [name for name in PODS if name != "nginx-2"]
    stage.apply_and_await("04-affinity-pod-gone", SERVICE, [f"{PODS[name]}:80" for name in rest])
    after = _ask(stage, clients)
    orphans = [client for client in clients if before[client] == "nginx-2"]
    stage.show.say(f"nginx-2 is taken away from its {len(orphans)} clients:")
    _show(stage, after)
    stage.check(
        orphans and all(after[client] in rest for client in orphans), "its clients are served by the other pods at once"
    )
    stage.check(
        all(after[client] == before[client] for client in clients if client not in orphans),
        "the clients of the other pods did not move",
    )
    stage.apply_and_await("00-cluster", SERVICE, [f"{PODS['nginx-1']}:80"])
    stage.await_kernel(lambda: not stage.lab.save().find("-m recent"), "affinity off")


def _set_timeout(stage: Stage, folder: str, seconds: int) -> None:
    stage.show.command(f"kubectl apply -f manifests/{folder}")
    stage.apply(folder)
    # All of the rules, of a chain that is switched in one piece.
    stage.await_kernel(
        lambda: len(stage.lab.save().find("--rcheck", f"--seconds {seconds} ")) == len(PODS),
        f"affinity of {seconds} s",
    )


def _ask(stage: Stage, clients: Sequence[str]) -> dict[str, str]:
    """Let every client ask once; who answered, "" for nobody."""
    answered = {}
    for client in clients:
        traffic = stage.lab.client.http(NGINX, 80, source_ip=client)
        answered[client] = next(iter(traffic.pods), "")
    return answered


def _show(stage: Stage, pods: Mapping[str, str]) -> None:
    rows = []
    for name in sorted(set(pods.values())):
        clients = [f".{client.rpartition('.')[2]}" for client, pod in pods.items() if pod == name]
        rows.append((name or "nobody", f"{len(clients)}", " ".join(clients)))
    stage.show.table(["pod", "clients", "192.168.77…"], rows)
