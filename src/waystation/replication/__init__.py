"""What a partition's replicas agree on: who is in sync, what is committed, where logs diverge.

Pure: offsets and reports in, decisions out.  Waiting, sending and syncing are the callers'.
"""
