"""The brokers under test, each started on a fresh directory and stopped by us."""
