"""Spark finds the data source ``waystation.table`` here: it looks for modules of this name.

Every Python process of a Spark job imports this, so it imports little.
"""
