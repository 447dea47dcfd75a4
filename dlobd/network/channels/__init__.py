"""Channel libraries, which carry bytes between ranks: `base` defines their interface."""
