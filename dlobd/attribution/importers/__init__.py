"""Parsers: one file a kind of record. They know formats; what a record means for a run is `lanes/`."""
