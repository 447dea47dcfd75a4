"""The published figures. Each command of `make` measures what is missing, and writes its part of docs/results.md."""
