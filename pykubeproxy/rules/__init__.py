"""Pure rule text: what a service becomes in netfilter, in the words that iptables-save prints."""
