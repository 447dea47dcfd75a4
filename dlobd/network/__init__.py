"""What moves gradients between ranks: `channels/` carry bytes, `exchanges/` are algorithms over them."""
