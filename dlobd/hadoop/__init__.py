"""Clients of HDFS and YARN that use web interfaces and site files; `embedded/` runs Hadoop's daemons on loopback.

Code of this room knows Hadoop but nothing about runs: no experiment, no bundle, no Spark job.
"""
