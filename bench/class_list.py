"""Writes `yarn/daemon-classes.gz`: the classes that the daemons load until they are ready, for their archive.

python -m bench.class_list, in a checkout. To be run again with a new Hadoop, pyspark or Java; a class that is not there
any more is passed over, and one that is missing in the list is loaded as without an archive.
"""

from __future__ import annotations

import gzip
import itertools
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from dlobd.hadoop.embedded import daemons
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import ClusterSettings
from dlobd.paths import shipped


def main() -> None:
    """Start a cluster of its own without archive, every JVM of which writes its list."""
    command, numbers = daemons.java_command, itertools.count()
    with tempfile.TemporaryDirectory(prefix="dl-", dir="/tmp") as name:

        def recording(*args: Any) -> list[str]:
            java, *words = (word for word in command(*args) if not word.startswith("-XX:SharedArchiveFile="))
            return [java, f"-XX:DumpLoadedClassList={name}/{next(numbers)}.classes", *words]

        cluster = EmbeddedCluster(ClusterSettings(Path(name) / "c"))
        with mock.patch.object(daemons, "java_command", recording):
            cluster.start(print)
        cluster.stop()
        lines = [line for path in sorted(Path(name).glob("*.classes")) for line in path.read_text().splitlines()]
    # a proxy's class is made when it is asked for: there is none to be found
    wanted = dict.fromkeys(line for line in lines if not line.startswith(("#", "jdk/proxy", "com/sun/proxy")))
    text = "".join(f"{line}\n" for line in wanted)
    (shipped("yarn") / "daemon-classes.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(wanted)} lines")


if __name__ == "__main__":
    main()
