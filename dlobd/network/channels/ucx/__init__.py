"""UCX by a binding of dlobd's own: `library` finds it, `declarations` are its C interface, `context` sets it up for one
transport, and `channel` and `connection` carry messages. What needs UCX itself to be loaded stays below `context`."""
