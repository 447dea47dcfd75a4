"""Evidence of a run: a bundle in, typed facts out. One parser per kind of record, one clock alignment.

Parsers know formats. The meaning of a record for a run belongs to `dlobd.timeline`.
"""
