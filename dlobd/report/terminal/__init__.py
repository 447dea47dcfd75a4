"""Terminal reports: the views of `dlobd show`, as wide as the terminal, and readable without colour."""
