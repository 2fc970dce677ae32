"""One file per Kafka API: wire to domain and back, translation only."""
