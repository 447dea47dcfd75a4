"""Studies of finished runs: scripts as users call them, and the package `studies` with their computation."""
