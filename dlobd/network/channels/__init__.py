"""Channels: libraries that carry bytes between ranks. `base` is the contract, one file a library."""
