"""Worker daemon for a user's script, with TensorFlowOnSpark as published."""

from functools import partial

from dlobd.job.launchers.worker_daemon import serve
from dlobd.job.user.hooks import prepare_daemon

if __name__ == "__main__":
    serve(partial(prepare_daemon, "tfos-stock"))
