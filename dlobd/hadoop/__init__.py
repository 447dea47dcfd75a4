"""Clients of HDFS and YARN that use web interfaces and site files; `embedded/` runs Hadoop's daemons on loopback.

Code of this package knows Hadoop but nothing about runs: no experiment, no bundle, no Spark job.
"""
