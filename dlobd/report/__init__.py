"""Reports of runs: terminal, page and exports. Common figures and tables are computed once."""
