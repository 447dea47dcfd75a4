"""Reports of runs: terminal, page and exports. Figures and tables that several of them show are computed once."""
