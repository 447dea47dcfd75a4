"""Terminal reports: the views of `dlobd show`, with lines of at most 79 columns that are readable without colour."""
