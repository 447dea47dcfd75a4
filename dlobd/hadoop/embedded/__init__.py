"""Hadoop's daemons on loopback, one JVM per daemon: Java, jars, configuration, ports, start, watchdog."""
