"""Terminal reports: the overview, and the views of `dlobd show`. A line has at most 79 columns and needs no colour."""
