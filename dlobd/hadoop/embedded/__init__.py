"""Hadoop's own daemons on loopback, each a JVM: Java, jars, configuration, ports, start, watchdog."""
