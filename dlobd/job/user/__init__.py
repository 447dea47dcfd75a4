"""Records the user's own script: runs it on the driver, with hooks around functions that it calls, and on workers."""
