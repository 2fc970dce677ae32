"""What HTTP costs a node: ``python -m benchmarks.gateway``."""
