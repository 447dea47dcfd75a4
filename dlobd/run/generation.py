"""Has a large data set that needs no files made on the nodes, by a Spark job of its own before the window."""

from __future__ import annotations

import json
from dataclasses import asdict

from dlobd import own_file
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.trust import reasons
from dlobd.axes import SCHEDULERS
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError
from dlobd.job.datasets.base import dataset_of, layout_of
from dlobd.job.generation import Request
from dlobd.paths import plain, shipped
from dlobd.run import submissions
from dlobd.run.collect import application
from dlobd.run.deploy.base import Place, Progress
from dlobd.run.schedulers.base import Submission
from dlobd.run.submit import submit
from dlobd.schema import Experiment

FROM_BYTES = 512 << 20
"""From this size on a data set is made on the nodes. To start Spark takes 15 to 20 s; meanwhile a client makes and
writes about as much, at 30 to 60 MB/s, and less over a network."""

BELOW = "logs/generation"
"""Where that job's own logs and evidence lie in the run's bundle, in a bundle's folders."""


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
        ClusterError: the job failed, or did not end in time; what it left counts as absent, and its evidence is kept.
        KeyboardInterrupt: the user, or the system, ended it.
    """
    progress(f"prepare: making data set {experiment.dataset} on the nodes, by Spark")
    place.prepare("")  # its event log's directory
    own = Bundle(bundle.path / BELOW)
    for folder in (own.logs, own.evidence):
        folder.mkdir(parents=True)
    fields = place.job_fields()
    file = own.logs / "request.json"
    file.write_text(Request(experiment, base, fields["webhdfs_url"], fields["user"]).to_json())
    own.add_bytes(json.dumps(asdict(experiment), indent=1).encode(), files.JOB)
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
    command = SCHEDULERS.get(experiment.scheduler)().command(submission, place.target(), plain(own.evidence))
    with submissions.watched(run_id, place.rm_url):
        window = submit(
            command, own.logs, experiment.timeout_s, experiment.accept_timeout_s, lambda line: None, place.abort
        )
    own.add_bytes(json.dumps(asdict(window), indent=1).encode(), files.WINDOW)
    own.redact_driver_logs()
    if window.exit_code or window.ended_by:
        place.collect(window, None, own)
    elif place.rm_url and window.application_id:  # its containers must not be waited for within the run's window
        application.await_end(place.rm_url, (), window.application_id, kill=False)
    if window.ended_by == "interrupt":
        raise KeyboardInterrupt
    if why := reasons.ended_badly(Evidence(own.path), experiment):
        raise ClusterError(
            f"Data set {experiment.dataset} could not be made on the nodes: {why.rstrip('.')}.",
            f"see {own.path}",
        )
