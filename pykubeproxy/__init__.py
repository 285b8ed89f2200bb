"""A kube-proxy replacement daemon: Kubernetes Services as iptables rules, and an explanation of each."""

__version__ = "0.1.0"
