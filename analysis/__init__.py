"""Studies of finished runs: `python analysis STUDY`. The package `studies` has their computation."""
