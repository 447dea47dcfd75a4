"""Worker daemon for TensorFlowOnSpark as published: it records, and does not import TensorFlowOnSpark."""

from dlobd.job.launchers.tfos_stock import install
from dlobd.job.launchers.worker_daemon import serve

if __name__ == "__main__":
    serve(install)
