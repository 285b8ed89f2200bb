"""The fault bench: the whole daemon on the real kernel, with traffic, while one thing after the other goes wrong.

``scene`` is the laboratory with an API server in it that can be made to misbehave; ``seam`` the programs in front of
iptables that fail, hang and are killed on order; ``rows`` the faults; ``truth`` what the kernel should hold.
``python -m e2e.faults`` prints the table.
"""
