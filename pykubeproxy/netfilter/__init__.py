"""The kernel's edge: which iptables, how to restore, how to read, how to notice that somebody else wrote."""
