"""Recording of the user's own script: its driver, hooks around the functions that it calls, and Spark's worker daemons
with these hooks."""
