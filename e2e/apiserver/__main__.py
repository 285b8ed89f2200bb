"""Run the stand-in as a program until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from e2e.apiserver.standin import StandIn


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the URL is the first line on stdout."""
    parser = argparse.ArgumentParser(prog="python -m e2e.apiserver", description="A kube-apiserver stand-in.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--objects", nargs="*", default=[], metavar="FILE", help="YAML or JSON files to start with")
    parser.add_argument("--token", action="append", metavar="TOKEN", help="accept this bearer token (repeatable)")
    parser.add_argument("--tls", action="store_true", help="make a CA and a certificate, serve https")
    parser.add_argument("--tls-cert", metavar="FILE")
    parser.add_argument("--tls-key", metavar="FILE")
    parser.add_argument("--faults", action="store_true", help="serve /_standin/faults and /_standin/stats")
    parser.add_argument("--kubeconfig", metavar="FILE", help="write a kubeconfig that leads here")
    options = parser.parse_args(arguments)
    server = StandIn(
        host=options.host,
        port=options.port,
        tokens=options.token,
        tls=options.tls,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        serves_faults=options.faults,
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    with server:
        for path in options.objects:
            server.load_yaml(path)
        if options.kubeconfig:
            server.write_kubeconfig(Path(options.kubeconfig), token=(options.token or [None])[0])
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    sys.exit(main())
