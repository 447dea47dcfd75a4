"""The user's own script, recorded: its driver, hooks around what it calls, Spark's worker daemons with these hooks."""
