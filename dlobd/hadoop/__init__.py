"""Clients of HDFS and YARN that use web interfaces and site files; `embedded/` runs Hadoop's daemons on loopback.

This package contains only Hadoop code: no experiments, no bundles, no Spark jobs.
"""
