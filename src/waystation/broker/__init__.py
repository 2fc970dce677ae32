"""One broker: the partitions it holds, the cluster as it sees it, and its housekeeping."""
