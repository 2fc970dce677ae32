"""Which messages an SQL-92 selector means, and what a log is without the others."""
