"""What a running node tells about itself: numbers and events."""
