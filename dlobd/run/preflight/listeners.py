"""Sockets on which the processes of a run listen, with their addresses and protection."""

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Listener:
    """Socket that a run opens: its program, its address and its protection."""

    program: str
    address: str
    protected: str


_LISTENERS = """
HDFS's and YARN's daemons | 127.0.0.1 | nothing (Hadoop's simple authentication)
Spark's driver and executors | 127.0.0.1 | nothing, unless spark.authenticate is set
TensorFlowOnSpark's reservation server, which unpickles its input | 127.0.0.1; tfos-stock: 0.0.0.0 | nothing
TensorFlowOnSpark's queue manager | a Unix socket; for ps and evaluator: 0.0.0.0 | its own key
TensorFlow's gRPC server in each rank, with TensorFlow's own exchanges | 0.0.0.0, fixed by TensorFlow | nothing
dlobd in the driver: clock; with barrier also the ranks' log lines | 127.0.0.1 | the run's secret
dlobd in the driver, with exchanges of dlobd's own: key-value store; with mpi also PMI | 127.0.0.1 | the run's secret
a rank's channel, with dlobd's own exchanges: sockets and grpc | CHANNEL | HMAC with the run's secret
a rank's channel, with dlobd's own exchanges: ucx and mpi | CHANNEL | nothing
""".replace("CHANNEL", "the channel's address; without a device: 127.0.0.1")
LISTENERS = tuple(Listener(*map(str.strip, line.split("|"))) for line in _LISTENERS.strip().splitlines())
"""Program, address and protection of each socket."""


def listeners(conf_dir: Path | None = None) -> tuple[Listener, ...]:
    """Return the sockets that a run opens on this machine, and on the nodes of an external cluster if `conf_dir` names
    a cluster."""
    if conf_dir is None:
        return LISTENERS
    node = "each host's address in the cluster"
    # the first row is for the embedded daemons, which an external cluster does not use
    return tuple(replace(row, address=row.address.replace("127.0.0.1", node)) for row in LISTENERS[1:])
