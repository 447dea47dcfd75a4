"""The published figures: `make bench`. Each module makes one table of docs/results.md with public functions."""
