"""Records the user's own script: runs it on the driver, with hooks around the functions that it calls, and on Spark's
workers."""
