"""Report page: one or several runs as one HTML file that needs no network."""
