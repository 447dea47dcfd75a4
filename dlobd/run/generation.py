"""Has a large data set that needs no files made on the nodes, by a Spark job of its own before the window."""

from __future__ import annotations

import re
from pathlib import Path

from dlobd import own_file
from dlobd.axes import SCHEDULERS
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError
from dlobd.job.datasets.base import dataset_of, layout_of
from dlobd.job.generation import Making
from dlobd.paths import plain, shipped
from dlobd.run import submissions
from dlobd.run.collect import application
from dlobd.run.deploy.base import Place, Progress
from dlobd.run.schedulers.base import Submission
from dlobd.run.submit import Window, submit
from dlobd.schema import Experiment

FROM_BYTES = 512 << 20
"""From this size on a data set is made on the nodes. To start Spark takes 15 to 20 s; meanwhile a client makes and
writes about as much, at 30 to 60 MB/s, and less over a network."""

LOGS = "generation"
"""Of that job, below the bundle's logs."""

_CAUSE = re.compile(r"^dlobd: job failed: (.*)$", re.MULTILINE)


def wanted(experiment: Experiment) -> bool:
    """Whether the data set may be made anywhere, there are nodes, and it is large."""
    if own_file.named(experiment.dataset):
        return False  # its class is here only
    dataset = dataset_of(experiment)
    samples = experiment.train_samples + experiment.test_samples
    large = samples * layout_of(dataset).record_bytes >= FROM_BYTES
    return experiment.scheduler != "none" and getattr(dataset, "anywhere", False) and large


def make(experiment: Experiment, place: Place, bundle: Bundle, progress: Progress, base: str) -> None:
    """Makes all files below `base`, the last of which says that they are whole.

    Raises:
        ClusterError: the job failed, or did not end in time; what it left counts as absent.
        KeyboardInterrupt: the user, or the system, ended it.
    """
    progress(f"prepare: making data set {experiment.dataset} on the nodes, by Spark")
    place.prepare("")  # its event log's directory
    logs = bundle.logs / LOGS
    logs.mkdir(parents=True)
    fields = place.job_fields()
    file = logs / "making.json"
    file.write_text(Making(experiment, base, fields["webhdfs_url"], fields["user"]).to_json())
    run_id = f"{bundle.run_id}-data"
    submission = Submission(
        name=f"dlobd-data-{experiment.dataset}",
        deploy_mode=experiment.deploy_mode,
        workers=experiment.workers,
        executor_cores=1,
        executor_gpus=0,
        executor_memory_mb=experiment.executor_memory_mb,
        executor_overhead_mb=experiment.executor_overhead_mb,
        conf={"spark.hadoop.dfs.replication": str(experiment.replication)},
        script=plain(shipped("jobs")) / "generate.py",
        arguments=(str(plain(file.parent) / file.name),),
        tag=submissions.tag_of(run_id),
        files=(plain(file.parent) / file.name,),
    )
    command = SCHEDULERS.get(experiment.scheduler)().command(submission, place.target(), plain(logs))
    with submissions.watched(run_id, place.rm_url):
        window = submit(
            command, logs, experiment.timeout_s, experiment.accept_timeout_s, lambda line: None, place.abort
        )
    if place.rm_url and window.application_id:  # its containers must not be waited for within the run's window
        application.await_end(place.rm_url, (), window.application_id, kill=bool(window.ended_by))
    for log in sorted(logs.iterdir()):
        bundle.add(log, f"logs/{LOGS}/{log.name}")  # again, without the secrets that third parties print
    if window.ended_by == "interrupt":
        raise KeyboardInterrupt
    if window.exit_code or window.ended_by:
        raise ClusterError(
            f"Data set {experiment.dataset} could not be made on the nodes: {_cause(window, logs)}.",
            "see YARN's logs of the application" if window.application_id else "",
        )


def _cause(window: Window, logs: Path) -> str:
    """Why the job did not end well, as far as its driver said."""
    # spark-submit prints to stdout what its Python driver writes to stderr
    said = _CAUSE.findall("\n".join(log.read_text(errors="replace") for log in sorted(logs.glob("driver.std*"))))
    if window.ended_by:
        return f"it was ended by {window.ended_by}; {window.diagnostics}".rstrip("; ")
    return (said[-1] if said else f"application {window.application_id}, exit code {window.exit_code}").rstrip(".")
