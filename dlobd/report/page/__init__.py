"""The report page: one or several runs as one HTML file that needs no network.

    source    reading of a bundle: its record, and its trace if the evidence is readable
    data      the data of the page, as one dictionary for JSON
    render    the page as HTML, with the scripts and styles of assets/

Every figure is one of `dlobd.report.summary`, `dlobd.report.tables` or of the record.
"""
