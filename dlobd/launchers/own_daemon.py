"""The worker daemon for a person's own script, with the compatibility layer for TensorFlowOnSpark."""

from functools import partial

from dlobd.launchers.own import prepare_daemon
from dlobd.launchers.worker_daemon import serve

if __name__ == "__main__":
    serve(partial(prepare_daemon, "tfos"))
