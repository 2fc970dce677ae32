"""Transactions: writes to many partitions that count together or not at all.

Pure: events in, records and replies out.  ``machine.py`` is the way in.
"""
