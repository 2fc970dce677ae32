"""Push beside RabbitMQ's and NATS's own: ``python -m benchmarks.push``."""
