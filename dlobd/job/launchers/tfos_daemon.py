"""Worker daemon for TensorFlowOnSpark. It installs `tfos_compat` at run time: the installation is unchanged."""

from dlobd.job.launchers import tfos_compat
from dlobd.job.launchers.worker_daemon import serve

if __name__ == "__main__":
    serve(tfos_compat.install)
