"""The report page: one or several runs as one HTML file that needs no network.

Every figure is one of `dlobd.report.summary`, `dlobd.report.tables` or of the record.
"""
