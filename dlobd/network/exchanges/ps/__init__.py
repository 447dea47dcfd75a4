"""Parameter servers: `servers` sum the pushed gradients, `process` runs a server, `exchange` is the ranks' side."""
