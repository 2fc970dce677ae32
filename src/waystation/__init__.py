"""Waystation: a distributed message queue that speaks the Kafka protocol."""

from waystation.version import VERSION as __version__

__all__ = ["__version__"]
