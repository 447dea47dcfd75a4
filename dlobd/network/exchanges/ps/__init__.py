"""Parameter servers of dlobd: `servers` sum the pushed gradients, `process` runs a server, `exchange` is the
ranks' side."""
