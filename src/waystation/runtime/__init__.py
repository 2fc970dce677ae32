"""Time, tasks and timers: the only place where the process meets the clock."""
