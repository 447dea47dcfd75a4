"""The worker daemon for TensorFlowOnSpark as published: it records, and imports nothing of TensorFlowOnSpark."""

from dlobd.job.launchers.tfos_stock import install
from dlobd.job.launchers.worker_daemon import serve

if __name__ == "__main__":
    serve(install)
