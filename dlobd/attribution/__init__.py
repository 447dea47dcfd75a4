"""A bundle in, numbers out. Pure: no cluster, no clock; the same files give the same numbers.

importers/    parsers for third-party and dlobd's own records
lanes/        one sequential timeline each, and who waits for whom
nesting       one lane made orderly
attribute     the wall split by layer
trust/        may the result be believed: checks, reasons, warnings
"""
