"""One module per study, and shared modules: estimates, variation, bars of layers, pictures, the command line.

Studies read bundles with `dlobd.compare` and `dlobd.report.summary`. No module of dlobd imports a study.
"""
