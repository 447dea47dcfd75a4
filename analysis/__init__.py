"""Studies of finished runs: `python analysis STUDY`. The package `studies` computes them."""
