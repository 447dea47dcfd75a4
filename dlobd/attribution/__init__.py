"""The kernel: a trace in, the wall time by layer out. Only `spans`, `layers` and `schema` may enter.

nesting           makes one lane orderly; each correction is a Clip
attribute         splits the wall time by the rules of docs/methodology.md, with the quality of the evidence
what_if           replays the trace with less of something
"""
