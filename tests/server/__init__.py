"""Real sockets on free ports, on both event loops."""
