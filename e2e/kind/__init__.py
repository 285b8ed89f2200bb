"""The daemon in a cluster of kind: needs Docker or podman, kind and kubectl.

``python -m e2e.kind``: a cluster without kube-proxy, the daemon by its overlay, the checks of ``e2e.lab.checks``
through kubectl, and the Services part of the upstream suite if its binary is given. ``python -m e2e.kind.takeover``: a
cluster with kube-proxy, which the daemon takes over under load and gives back. All programs are run by ``commands``.
"""
