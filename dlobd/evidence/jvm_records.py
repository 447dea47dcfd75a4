"""The records of one of Spark's JVMs: its log, its RPC calls, and its life."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from dlobd.evidence import rpc, spark
from dlobd.evidence.jvm import JvmLife
from dlobd.evidence.log4j import LogLine


class JvmRecords:
    """The records of the JVM of spark-submit or of the driver, read when first used."""

    def __init__(self, lines: Callable[[], list[LogLine]], life: Callable[[], JvmLife | None]) -> None:
        self._read_lines = lines
        self._read_life = life

    @cached_property
    def lines(self) -> list[LogLine]:
        """The lines of its log."""
        return self._read_lines()

    @cached_property
    def log(self) -> spark.DriverLog:
        """The events of its log."""
        return spark.driver(self.lines)

    @cached_property
    def calls(self) -> list[rpc.Call]:
        """Its calls of HDFS and YARN."""
        return rpc.calls(self.lines)

    @cached_property
    def life(self) -> JvmLife | None:
        """Start, end and pauses of the JVM; None without a JVM log."""
        return self._read_life()
