"""The published figures: `make bench`. Each module makes one table of docs/bench.md, over dlobd's public functions."""
