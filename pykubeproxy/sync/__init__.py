"""From dirty service ports to applied chains: render, diff, plan, apply, and when to do so."""
