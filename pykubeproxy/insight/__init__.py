"""What a person asks of a ruleset: explain, trace, diff. Pure over rules; never writes to the kernel."""
