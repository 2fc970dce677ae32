"""Ready-made Spark jobs over topics, one per file."""
