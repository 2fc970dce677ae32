"""Consumer groups: who reads which partition, and how far each group has read.

Pure: events in, records and replies out.  ``machine.py`` is the way in.
"""
