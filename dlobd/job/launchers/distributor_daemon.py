"""Worker daemon for spark-tensorflow-distributor: it records spans, and does not import the package."""

from dlobd.job.launchers.distributor import install
from dlobd.job.launchers.worker_daemon import serve

if __name__ == "__main__":
    serve(install)
