"""How a cluster grows: one thing at a time is made larger, and what a large one takes follows."""
