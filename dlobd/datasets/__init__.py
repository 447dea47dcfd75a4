"""Data sets, and the format in which they lie in HDFS."""
