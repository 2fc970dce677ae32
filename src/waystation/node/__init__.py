"""The composition root: settings in, one running node out."""
