"""Profiles side by side: what each gains and what it costs, from little load to the most."""
