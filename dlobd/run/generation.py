"""Generates a large data set on the nodes by a Spark job before the window, if the data set needs no local files."""

from dlobd.axes import SCHEDULERS
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError
from dlobd.evidence.evidence import Evidence
from dlobd.job.datasets.base import dataset_of, layout_of
from dlobd.job.generation import Request
from dlobd.paths import plain, shipped
from dlobd.run import orphans
from dlobd.run.collect import application
from dlobd.run.observer import Report
from dlobd.run.place.base import Place
from dlobd.run.schedulers.base import Submission
from dlobd.run.submitted_process import submit
from dlobd.schema import Experiment
from dlobd.trust import reasons

FROM_BYTES = 512 << 20
"""Minimum size of a data set that Spark generates on the nodes. Spark starts in 15 to 20 s; in this time a client
generates and writes about this amount at 30 to 60 MB/s, or less over a network."""

BELOW = "logs/generation"
"""Directory in the run's bundle for this job's logs and evidence; it has the same folders as a bundle."""


def wanted(experiment: Experiment) -> bool:
    """Return True if the data set is large and can be generated anywhere, and a cluster exists."""
    if experiment.dataset.path:
        return False  # the class of a user's data set exists only on this machine
    dataset = dataset_of(experiment)
    samples = experiment.train_samples + experiment.test_samples
    large = samples * layout_of(dataset).record_bytes >= FROM_BYTES
    return experiment.scheduler != "none" and getattr(dataset, "anywhere", False) and large


def make(experiment: Experiment, place: Place, bundle: Bundle, report: Report, base: str) -> None:
    """Generate all files below `base`. The last file marks them as complete. Raises ClusterError if the job failed or
    timed out: its files are treated as missing, and its evidence is kept. Raises KeyboardInterrupt after Ctrl-C."""
    report(f"prepare: Spark generates data set {experiment.dataset} on the nodes")
    place.prepare("")  # creates the directory of the job's event log
    inner = Bundle(bundle.path / BELOW)
    for folder in (inner.logs, inner.evidence):
        folder.mkdir(parents=True)
    fields = place.job_fields()
    file = inner.logs / "request.json"
    file.write_text(Request(experiment, base, fields["webhdfs_url"], fields["user"]).to_json())
    inner.add_json(experiment, files.JOB)
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
        tag=orphans.tag_of(run_id),
        files=(plain(file.parent) / file.name,),
    )
    command = SCHEDULERS.get(experiment.scheduler)(submission, place.target(), plain(inner.evidence))
    with orphans.watched(run_id, place.rm_url):
        window = submit(
            command, inner.logs, experiment.timeout_s, experiment.accept_timeout_s, lambda line: None, place.abort
        )
    inner.add_json(window, files.WINDOW)
    inner.redact_driver_logs()
    if window.exit_code or window.ended_by:
        place.collect(window, None, inner)
    elif place.rm_url and window.application_id:  # otherwise the run would wait for its containers
        application.await_end(place.rm_url, (), window.application_id, kill=False)
    if window.ended_by == "interrupt":
        raise KeyboardInterrupt
    if why := reasons.ended_badly(Evidence(inner.path), experiment):
        raise ClusterError(f"Data set {experiment.dataset} was not generated: {why.rstrip('.')}.", f"see {inner.path}")
