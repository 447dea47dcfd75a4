"""What a file system may raise; apart from its clients, because Spark's Python workers import this early."""

from __future__ import annotations


def failures() -> tuple[type[Exception], type[Exception]]:
    """HDFS or the disk refused, or cannot be reached: `except failures():`.

    Python asks only once something was raised, so that no HTTP client is imported to name an error that did not come.
    """
    from hdfs import HdfsError

    return HdfsError, OSError
