"""The worker daemon for the user's own script, with TensorFlowOnSpark as published."""

from functools import partial

from dlobd.job.launchers.worker_daemon import serve
from dlobd.job.own.hooks import prepare_daemon

if __name__ == "__main__":
    serve(partial(prepare_daemon, "tfos-stock"))
