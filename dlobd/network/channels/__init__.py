"""Channel libraries, which carry bytes between ranks: `base` is their contract."""
