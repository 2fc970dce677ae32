"""The Spark data sources: topics as tables, and tables in a lake."""
