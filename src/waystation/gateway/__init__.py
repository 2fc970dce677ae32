"""HTTP: health, readiness and metrics, in the broker's own loop."""
