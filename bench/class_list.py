"""Write `yarn/daemon-classes.gz`: names of the classes that daemons load at start, for their shared class archive.

    python -m bench.class_list

Rerun it in a checkout after an upgrade of Hadoop, pyspark or Java. The JVM skips classes of the list that do not exist,
and loads classes that are not in the list without the archive.
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
    """Start a separate cluster without an archive; each of its JVMs writes a list."""
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
    # classes of proxies are created at run time
    wanted = dict.fromkeys(line for line in lines if not line.startswith(("#", "jdk/proxy", "com/sun/proxy")))
    text = "".join(f"{line}\n" for line in wanted)
    (shipped("yarn") / "daemon-classes.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(wanted)} lines")


if __name__ == "__main__":
    main()
