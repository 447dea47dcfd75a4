"""Parameter servers of dlobd: `servers` sum what ranks push, `process` runs one, `exchange` is the ranks' side."""
