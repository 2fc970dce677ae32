"""The asyncio client: ``Producer``, ``Consumer`` and ``Admin``, for any broker that speaks Kafka.

Users import the three from ``waystation``; front ends of a node use them too, over a
transport that stays inside the process (``transport.py``).
"""
