"""``python -m e2e.demo``: run the experiments and say whether all of it holds (exit status 0) or not (1)."""

from __future__ import annotations

import argparse
import io
import os
import shlex
import shutil
import signal
import sys
import threading

from e2e.demo.experiments import EXPERIMENTS, FOREIGN_RULES
from e2e.demo.show import Show
from e2e.demo.stage import Stage
from e2e.netlab import Backend, LabError

Outcome = dict[int, list[str]]
"""What did not hold, by experiment; [] is good."""


def main() -> int:
    """Run what the command line asks for."""
    arguments = _arguments()
    _say_what_is_missing(arguments.backend)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the laboratory is removed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # ticks and arrows, whatever the locale says
    show = Show()
    backends: list[Backend] = ["nft", "legacy"] if arguments.backend == "both" else [arguments.backend]
    outcomes: dict[str, Outcome] = {}
    for backend in backends:
        outcomes[backend] = {}
        try:
            _run_backend(backend, show, arguments, outcomes[backend])
        except LabError as problem:
            show.trouble(f"{backend}: {problem}")
            outcomes[backend][0] = ["the laboratory or the proxy did not come up, see above"]
    titles = {0: "(preparation)"} if any(0 in failed for failed in outcomes.values()) else {}
    titles |= {number: experiment.title for number, experiment in EXPERIMENTS.items()}
    show.summary(titles, outcomes)
    return 1 if any(texts for failed in outcomes.values() for texts in failed.values()) else 0


def _run_backend(backend: Backend, show: Show, arguments: argparse.Namespace, outcome: Outcome) -> None:
    with Stage(backend, show, shlex.split(arguments.command)) as stage:
        show.act(backend, stage.lab.iptables("--version").stdout.strip())
        show.command(stage.proxy.command_line())
        for number, experiment in EXPERIMENTS.items():
            if arguments.only and number not in arguments.only:
                continue
            show.heading(number, experiment.title)
            stage.failed = []
            try:
                experiment.run(stage)
            except LabError as problem:
                show.trouble(str(problem))
                stage.failed.append(str(problem).splitlines()[0])
                stage.recover()
            outcome[number] = stage.failed
        if not arguments.only or FOREIGN_RULES in arguments.only:
            stage.failed = outcome[FOREIGN_RULES]
            _look_after_all(stage, show)
            if arguments.keep:
                stage.proxy.start()
                stage.proxy.wait_synced()
        if arguments.keep:
            _keep(stage)


def _look_after_all(stage: Stage, show: Show) -> None:
    """Compare the rules of others once more at the end, and after our own rules have been taken out."""
    show.heading(FOREIGN_RULES, "… and afterwards")
    stage.check(
        not stage.report(stage.baseline, stage.foreign.snapshot()), "after all experiments: not a line has changed"
    )
    try:
        stage.clean_up()
    except LabError as problem:
        show.trouble(str(problem))
    left = stage.left_behind()
    stage.check(not left, f"--cleanup took out every rule of ours{': but ' + left[0] if left else ''}")
    stage.check(not stage.report(stage.baseline, stage.foreign.snapshot()), "and not a line of others")


def _keep(stage: Stage) -> None:
    """Leave the laboratory standing until Ctrl-C, and tell how to walk around in it."""
    lab = stage.lab
    curl = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://10.101.245.66/\").read().decode())'"
    told = f"""
The laboratory stands until you press Ctrl-C here. In another terminal, as root:

  the node            {lab.node.enter()} bash
  its rules             iptables-{lab.backend} -t nat -L KUBE-SERVICES -n -v
  the outside client  {lab.client.enter()} bash
  pod curl            {stage.curl.enter()} bash
  pod nginx-1         {stage.nginx[0].enter()} bash
  ask the service       {curl}
  change it             edit the manifests in {stage.live}
  what the proxy says   tail -f {stage.proxy.log}
"""
    try:
        print(told, flush=True)
        threading.Event().wait()
    except (KeyboardInterrupt, SystemExit):
        print("removing the laboratory")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("--backend", choices=("nft", "legacy", "both"), default="both")
    parser.add_argument("--only", type=_numbers, default=[], metavar="N,N", help="these experiments only")
    parser.add_argument("--keep", action="store_true", help="leave the laboratory standing afterwards, until Ctrl-C")
    parser.add_argument("--command", default="", help="what to run in place of python -m pykubeproxy")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if unknown := [number for number in numbers if number not in EXPERIMENTS]:
        raise argparse.ArgumentTypeError(f"there is no experiment {unknown[0]}; 1 to {len(EXPERIMENTS)}")
    return numbers


def _say_what_is_missing(backend: str) -> None:
    """End with one clear line where the machine cannot do this."""
    if os.geteuid():
        sys.exit("The demo makes network namespaces and needs root: sudo make demo")
    os.environ["PATH"] = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"  # which su leaves out
    wanted = ["ip", "nft", "nsenter", "mount"]
    wanted += [f"iptables-{name}" for name in ("nft", "legacy") if backend in (name, "both")]
    missing = [program for program in wanted if shutil.which(program) is None]
    if missing:
        sys.exit(f"The demo needs {', '.join(missing)} (Debian: apt-get install iproute2 iptables nftables util-linux)")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
