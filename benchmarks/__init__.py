"""Speed, measured: a script per HOT function, and whole loads against peers (``-m benchmarks``)."""
