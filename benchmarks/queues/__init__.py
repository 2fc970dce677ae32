"""Queues beside those of RabbitMQ and Apache Kafka: ``python -m benchmarks.queues``."""
