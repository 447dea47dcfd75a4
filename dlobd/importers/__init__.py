"""Other people's records become our events: one file a source, and `assemble`, which joins them into one trace."""
