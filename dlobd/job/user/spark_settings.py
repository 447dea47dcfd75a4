"""Relations between Spark's settings: deprecated names, and settings that another setting overrules.

The names are those of Spark 4.3 (SparkConf, and the alternatives of its ConfigEntry), for running applications.
"""

from collections.abc import Iterable, Mapping
from typing import Any

CURRENT_NAMES = {
    "spark.archives": "spark.yarn.dist.archives",  # on YARN
    "spark.executor.logs.rolling.size.maxBytes": "spark.executor.logs.rolling.maxSize",
    "spark.files.userClassPathFirst": "spark.executor.userClassPathFirst",
    "spark.io.compression.lz4.block.size": "spark.io.compression.lz4.blockSize",
    "spark.io.compression.snappy.block.size": "spark.io.compression.snappy.blockSize",
    "spark.kryoserializer.buffer.max.mb": "spark.kryoserializer.buffer.max",
    "spark.kryoserializer.buffer.mb": "spark.kryoserializer.buffer",
    "spark.reducer.maxReqSizeShuffleToMem": "spark.network.maxRemoteBlockSizeFetchToMem",
    "spark.maxRemoteBlockSizeFetchToMem": "spark.network.maxRemoteBlockSizeFetchToMem",
    "spark.reducer.maxMbInFlight": "spark.reducer.maxSizeInFlight",
    "spark.scheduler.listenerbus.eventqueue.size": "spark.scheduler.listenerbus.eventqueue.capacity",
    "spark.shuffle.file.buffer.kb": "spark.shuffle.file.buffer",
    "spark.sql.kafkaConsumerCache.capacity": "spark.kafka.consumer.cache.capacity",
    "spark.storage.blockManagerSlaveTimeoutMs": "spark.storage.blockManagerHeartbeatTimeoutMs",
    "spark.streaming.minRememberDuration": "spark.streaming.fileStream.minRememberDuration",
    "spark.ui.jettyStopTimeout": "spark.ui.jetty.stopTimeout",
    "spark.unsafe.offHeap": "spark.memory.offHeap.enabled",
    "spark.yarn.access.namenodes": "spark.kerberos.access.hadoopFileSystems",
    "spark.yarn.access.hadoopFileSystems": "spark.kerberos.access.hadoopFileSystems",
    "spark.yarn.applicationMaster.waitTries": "spark.yarn.am.waitTime",
    "spark.yarn.driver.memoryOverhead": "spark.driver.memoryOverhead",
    "spark.yarn.executor.failuresValidityInterval": "spark.executor.failuresValidityInterval",
    "spark.yarn.executor.memoryOverhead": "spark.executor.memoryOverhead",
    "spark.yarn.jar": "spark.yarn.jars",
    "spark.yarn.kerberos.relogin.period": "spark.kerberos.relogin.period",
    "spark.yarn.keytab": "spark.kerberos.keytab",
    "spark.yarn.max.executor.failures": "spark.executor.maxNumFailures",
    "spark.yarn.principal": "spark.kerberos.principal",
}
"""Deprecated name -> current name. Spark uses the value of the current name if both are set."""

OVERRULED = {
    "spark.driver.bindAddress": ("spark.driver.host",),
    "spark.driver.memoryOverhead": ("spark.driver.memoryOverheadFactor", "spark.driver.minMemoryOverhead"),
    "spark.executor.memoryOverhead": ("spark.executor.memoryOverheadFactor", "spark.executor.minMemoryOverhead"),
    "spark.yarn.archive": ("spark.yarn.jars",),
}
"""Setting -> settings that have no effect beside it."""

JOINED = {
    "spark.files": ",",
    "spark.submit.pyFiles": ",",
    "spark.yarn.dist.archives": ",",
    "spark.yarn.tags": ",",
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
    "spark.yarn.am.extraJavaOptions": " ",
    "spark.executorEnv.PYTHONPATH": ":",
    "spark.yarn.appMasterEnv.PYTHONPATH": ":",
}
"""Setting whose values, of the user and of dlobd, are concatenated -> separator."""

EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
LOG_DIR = "<LOG_DIR>/"  # in Java options, YARN replaces it with the directory of a container's logs

REPLACEABLE = "spark.dlobd.replaceable"
"""Setting of dlobd: list of its KEY=VALUE that would overrule another setting of the script, and of the overruled."""


def rivals(key: str) -> tuple[str, ...]:
    """Return the settings that have no effect if `key` is set: its deprecated names, and those of `OVERRULED`."""
    overruled = OVERRULED.get(key, ())
    return (*overruled, *(old for old, current in CURRENT_NAMES.items() if current in (key, *overruled)))


def replaceable(settings: Mapping[str, str]) -> str:
    """Return the value of `REPLACEABLE` for settings of dlobd."""
    keys = {name for key in settings for name in (key, *rivals(key)) if rivals(key)} & settings.keys()
    return ",".join(f"{key}={settings[key]}" for key in sorted(keys))


def prefer_users(conf: Any, submitted: Any, daemons: Iterable[str]) -> list[str]:
    """Remove settings of dlobd that overrule a setting in the user's code, from the SparkConf of a SparkContext, and
    return them. `submitted` is the SparkConf before the user's code, whose values of `JOINED` are kept.

    Raises RuntimeError if the user's code sets another worker daemon than one of `daemons`.
    """
    settings, before = (_pairs(one.toDebugString().splitlines()) for one in (conf, submitted))
    ours = _pairs(settings.get(REPLACEABLE, "").split(","))
    for key, separator in JOINED.items():
        if key in before and key in settings and before[key] not in settings[key]:
            conf.set(key, f"{submitted.get(key)}{separator}{conf.get(key)}")
    removed = []
    for key, value in ours.items():
        users = [one for one in rivals(key) if one in settings and settings[one] != ours.get(one)]
        if users and settings.get(key) == value:
            conf.remove(key)
            removed.append(key)
    for key, allowed in (("spark.python.daemon.module", daemons), ("spark.python.use.daemon", ("true",))):
        if (users_value := settings.get(key)) and users_value not in allowed:
            raise RuntimeError(f"{key}={users_value} in the script is not supported: recording needs dlobd's daemon.")
    return removed


def leave_containers(conf: Any, configuration: str) -> None:
    """Adapt settings to a master with Workers, which have no log directory, and no copy of `configuration`."""
    options = conf.get(EXECUTOR_OPTIONS, "")
    if not conf.get("spark.master", "").startswith(("local-cluster[", "spark:")) or LOG_DIR not in options:
        return
    conf.set(EXECUTOR_OPTIONS, options.replace(LOG_DIR, "").replace("__spark_conf__/", f"{configuration}/"))
    conf.set("spark.executorEnv.LOG_DIRS", ".")


def _pairs(lines: Iterable[str]) -> dict[str, str]:
    return {key: value for key, _, value in (line.partition("=") for line in lines)}
