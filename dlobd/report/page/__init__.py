"""The report page: one or several runs as one HTML file that needs no network.

    source    a bundle as the page needs it: its record, and its trace where the evidence can be read
    data      all that the page shows, as one JSON-able dictionary
    render    that dictionary as HTML, with the scripts and styles of assets/ inside

Every figure is one of `dlobd.report.summary` or of the record, so that page and terminal cannot disagree.
"""
