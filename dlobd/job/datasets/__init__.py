"""Data sets, and their format in HDFS. `base` has the contract; each data set has a file."""
