"""Data sets, and the format in which they lie in HDFS. `base` is the contract, one file a data set."""
