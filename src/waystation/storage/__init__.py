"""Logs on disk: segments, indexes, checkpoints, recovery; synchronous, one owner per log."""
