"""HTTP in the broker's own loop: health, metrics, and the queue for everyone."""
