"""The worker daemon for TensorFlowOnSpark: prepared with `tfos_compat`, so that a user's Python stays untouched."""

from dlobd.job.launchers import tfos_compat
from dlobd.job.launchers.worker_daemon import serve

if __name__ == "__main__":
    serve(tfos_compat.install)
