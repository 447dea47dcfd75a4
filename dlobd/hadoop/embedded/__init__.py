"""Hadoop's daemons on loopback, a JVM each: Java, jars, configuration, ports, start, watchdog."""
