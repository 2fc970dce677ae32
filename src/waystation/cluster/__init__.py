"""What a cluster is and how it may change; pure decisions on an immutable image.

The image is read from the coordination store's items; a decision is a set of changes to them.
"""
