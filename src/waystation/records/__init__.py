"""Record batches, Kafka's format 2: their headers, their records, their compression."""
