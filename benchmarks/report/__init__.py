"""From single runs to one table: ratios, requirements, JSON and a plot.  Pure but for the files."""
