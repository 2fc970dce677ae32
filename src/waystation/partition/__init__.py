"""One replica of a partition: a storage log, a replication core, and those who wait for it."""
