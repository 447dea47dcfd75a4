"""dlobd's parameter servers: the workers' side, synchronous and asynchronous, and the servers, which are processes."""
