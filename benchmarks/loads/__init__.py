"""The clients that load a broker: librdkafka through ``rdload.c``, and Kafka's own Java tools."""
