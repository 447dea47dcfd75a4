"""Data sets, and their format in HDFS. `base` is the contract; each data set is a file."""
