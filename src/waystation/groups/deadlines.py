"""Moments by which members must have been heard of: ``model/deadlines.py`` under its old name."""

from waystation.model.deadlines import Deadlines

__all__ = ["Deadlines"]
