"""Builds lanes from evidence: the order of spans, and the lane that releases each wait. One module per kind of lane."""
