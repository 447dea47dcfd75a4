"""Cost of dlobd's commands for runs from 10^4 to 10^7 spans, and for wide runs."""
