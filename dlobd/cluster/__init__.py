"""The embedded cluster: real HDFS and YARN daemons on loopback, from pip packages and four jars."""
