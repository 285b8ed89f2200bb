"""`make demo`: a proxy, a small cluster and real packets, twelve things that must hold, on both backends."""
