"""Worker daemon for a user's script, with the compatibility layer for TensorFlowOnSpark."""

from functools import partial

from dlobd.job.launchers.worker_daemon import serve
from dlobd.job.user.hooks import prepare_daemon

if __name__ == "__main__":
    serve(partial(prepare_daemon, "tfos"))
