"""The daemon against a real control plane: etcd, kube-apiserver and kube-controller-manager, without kubelet.

``binaries`` finds the programs, ``controlplane`` runs them inside a laboratory's node, ``site`` makes a small cluster
of the two (Pods are objects here and namespaces there), ``checks`` is what must hold (on any site, kind's as well),
``takeover`` swaps kube-proxy and the daemon under load. ``python -m e2e.lab`` runs it all.
"""
