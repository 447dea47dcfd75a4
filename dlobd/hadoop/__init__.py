"""Clients of any HDFS and YARN, by their web interfaces and site files; `embedded/` runs Hadoop's daemons on loopback.

Here belongs what knows Hadoop and nothing of a run: no experiment, no bundle, no Spark job.
"""
