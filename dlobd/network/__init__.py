"""Exchange of gradients between ranks: `channels/` carry bytes, `exchanges/` combine gradients over them."""
