"""A bundle in, numbers out. Pure: no cluster, no clock; the same files give the same numbers.

importers/    third-party records, and ours, parsed
lanes/        one sequential timeline each, and who waits for whom
nesting       one lane made orderly
attribute     the wall split by layer
audits/       one quantity from two sources
"""
