"""What it costs when a replica copies a lot: after an outage, and when a partition moves."""
