"""What tests, the demo and the benchmarks stand on: servers and loads that are not part of the daemon."""
