"""Reads container logs that YARN has aggregated into HDFS. YARN's format may vary, so Hadoop's own reader reads them.

The reader is a library in Spark's jars. Its command line, LogsCLI, cannot start: a class of it is not in these jars.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dlobd.paths import spark_home

DEADLINE_S = 120.0

_LOG = re.compile(rb"^LogType:(\S+)\n(?:.*\n)*?LogLength:(\d+)\n(?:.*\n)*?LogContents:\n", re.MULTILINE)


def read(conf_dir: Path, java: Path, application_id: str, owner: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield container ID, name and content of each log file, one container after the other; nothing if YARN has none,
    or they cannot be read. `conf_dir` is HADOOP_CONF_DIR, `java` the executable for the reader."""
    from py4j.protocol import Py4JError

    try:
        with tempfile.TemporaryDirectory(prefix="dlobd-logs-", ignore_cleanup_errors=True) as folder:
            _dump(conf_dir, java, application_id, owner, folder)
            for path in sorted(Path(folder).rglob("container_*")):
                if path.is_file():
                    yield from ((path.name, *log) for log in split(path.read_bytes()))
    except (OSError, Py4JError):
        return


def _dump(conf_dir: Path, java: Path, application_id: str, owner: str, folder: str) -> None:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    jars = spark_home() / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=os.pathsep.join([str(conf_dir), f"{jars}/*"]),
        java_path=str(java),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    try:
        # disable memory management, which would contact a JVM that has ended
        parameters = GatewayParameters(
            port=port, auth_token=token, read_timeout=DEADLINE_S, enable_memory_management=False
        )
        gateway = JavaGateway(gateway_parameters=parameters)
        yarn = gateway.jvm.org.apache.hadoop.yarn
        helper = yarn.logaggregation.LogCLIHelpers()
        helper.setConf(yarn.conf.YarnConfiguration())
        request = yarn.logaggregation.ContainerLogsRequest()
        request.setAppId(yarn.api.records.ApplicationId.fromString(application_id))
        request.setAppOwner(owner)
        request.setAppFinished(True)
        request.setLogTypes(gateway.jvm.java.util.HashSet())  # logs of all types
        request.setBytes(2**63 - 1)
        request.setOutputLocalDir(folder)
        helper.dumpAllContainersLogs(request)
    finally:
        process.kill()
        process.wait(10)
        for pipe in (process.stdin, process.stdout):
            pipe.close()


def split(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Split a container's aggregated log; yield the name and content of each log file."""
    at = 0
    while match := _LOG.search(data, at):
        at = match.end() + int(match[2])
        yield match[1].decode(errors="replace"), data[match.end() : at]
