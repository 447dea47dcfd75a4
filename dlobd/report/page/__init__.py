"""Report page: one or several runs as one HTML file that needs no network.

All figures come from `dlobd.report.summary`, `dlobd.report.tables` or the record.
"""
