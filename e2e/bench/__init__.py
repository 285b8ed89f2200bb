"""Measure this project's daemon, and the real kube-proxy beside it, under the same load.

``clusters`` makes objects, ``room`` the namespaces, the API server and the processes in them, ``kernel`` sees what
stands in the kernel, ``load`` changes objects, ``scenarios`` measures, ``report`` prints. What a proxy says about
itself (logs, metrics, health) is never a measurement here.
"""
