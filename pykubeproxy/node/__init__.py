"""The node itself: sysctls, addresses, conntrack entries, nfacct counters."""
