"""Ids, offsets, errors and settings: the words every other package speaks."""
