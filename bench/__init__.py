"""Commands for the published figures. Each command executes missing measurements, and writes its part of
docs/results.md."""
