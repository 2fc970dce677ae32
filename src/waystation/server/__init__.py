"""Sockets: frames in, replies out, in order and within limits."""
