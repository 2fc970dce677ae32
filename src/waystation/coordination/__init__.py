"""One small, strongly consistent store that the cluster agrees through, and its backends."""
