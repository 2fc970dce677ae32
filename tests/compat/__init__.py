"""Clients from other ecosystems against a real broker: ``make compat``, not ``make test``."""
