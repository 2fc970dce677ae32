"""Queues over partitions: share groups (KIP-932), their order, retries and membership.

Pure: events in, records and replies out.  ``share_partition.py`` is the queue at a partition's
leader, ``state_machine.py`` remembers what it delivered, ``group_machine.py`` knows the members.
"""
