"""Builds the submit command and the job description of an experiment at a place. Starts nothing."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlobd import tracing
from dlobd.axes import LAUNCHERS, SCHEDULERS
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.experiment import own_job, spark_conf, user_logging
from dlobd.experiment.channels import library
from dlobd.experiment.spark_submit_line import merged, parse
from dlobd.experiment.user_logging import UserLogging
from dlobd.hadoop import spark_logging
from dlobd.job.description import Job
from dlobd.paths import plain, shipped
from dlobd.run import orphans, staging
from dlobd.run.place.base import Place
from dlobd.run.preflight.capacity import cores_of, gpus_of
from dlobd.run.schedulers.base import Command, Submission, Target
from dlobd.schema import Experiment, OwnJob, Runnable


def shell_line(command: Command, end: str = " ") -> str:
    """Format a command for a shell, with the environment variables that it adds. `end`: text before each
    option and after each variable."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(command.environment.items())]
    first, *words = map(shlex.quote, command.argv)
    words = [f"{end if word.startswith('--') else ' '}{word}" for word in words]
    return end.join([*variables, "".join((first, *words))])


def command_of(
    experiment: Runnable, target: Target | None, bundle: Path, packages: Path | None = None, archive: str = ""
) -> Command:
    """Return the submit command. Options of a user's own line override dlobd's options."""
    if isinstance(experiment, OwnJob):
        conf = own_job.daemon_conf(experiment)
        entry, own = own_job.ENTRY, Path(experiment.script).resolve()  # spark-submit resolves links in this path too
        arguments = (experiment.launcher, str(bundle / files.DRIVER_SPANS), str(own), *experiment.arguments)
        beside, options = (own,), experiment.options
    else:
        conf = LAUNCHERS.get(experiment.launcher)().spark_conf()
        job = bundle / "evidence" / "job.json"
        entry, arguments, beside = "train.py", (str(job),), (job,)
        options = spark_conf.Options(tuple(shlex.split(experiment.spark_conf)), experiment.queue).words
    logging = _logging(options, experiment.deploy_mode, bundle)
    in_container = [jvm for jvm in logging if jvm != "driver" or experiment.deploy_mode == "cluster"]
    recording = _recording(experiment)
    containers = ("spark.executorEnv", "spark.yarn.appMasterEnv")
    switches = {f"{prefix}.{name}": value for prefix in containers for name, value in recording.items()}
    submission = Submission(
        name=f"dlobd-{experiment.name}",
        deploy_mode=experiment.deploy_mode,
        workers=experiment.workers,
        own=isinstance(experiment, OwnJob),
        dynamic=own_job.is_dynamic(experiment),
        executor_cores=cores_of(experiment),
        executor_gpus=gpus_of(experiment),
        executor_memory_mb=experiment.executor_memory_mb,
        executor_overhead_mb=experiment.executor_overhead_mb,
        # replication of the event log and of other files that Spark writes
        conf={**conf, "spark.hadoop.dfs.replication": str(experiment.replication), **switches},
        script=plain(shipped("jobs")) / entry,
        arguments=arguments,
        python=experiment.python if isinstance(experiment, OwnJob) else "",
        packages=packages,
        archive=archive,
        tag=orphans.tag_of(bundle.name),
        files=beside,
        # a container has a copy in its working directory
        logging={
            jvm: f"{own.file},{path.name if jvm in in_container else path}" for jvm, (own, path) in logging.items()
        },
        logging_files=tuple(logging[jvm][1] for jvm in in_container),
    )
    command: Command = SCHEDULERS.get(experiment.scheduler)(submission, target, bundle / "evidence")
    if recording:
        command = replace(command, environment={**command.environment, **recording})
    if options or isinstance(experiment, OwnJob):
        texts = {path: _evidence(own) for own, path in logging.values()}
        command = replace(command, argv=merged(command.argv, options), files=texts)
    if isinstance(experiment, OwnJob):
        # the script's temporary files are where they are without dlobd
        environment = {name: value for name, value in command.environment.items() if name != "TMPDIR"}
        return replace(command, environment=environment)
    return command


def _recording(experiment: Runnable) -> dict[str, str]:
    """Return the environment variables of the recorder. It is off in all processes if it is off in this process."""
    if tracing.switched_off():
        return {tracing.SWITCH: "off"}
    every = experiment.record_every_steps
    return {tracing.EVERY: str(every)} if every > 1 else {}


def _logging(options: Sequence[str], deploy_mode: str, bundle: Path) -> dict[str, tuple[UserLogging, Path]]:
    """Return the user's configuration and the file of dlobd's part, for each JVM whose logging the user configures."""
    found = user_logging.of_line(parse(("spark-submit", *options, "script")).settings, deploy_mode == "cluster")
    return {jvm: (own, bundle / "logs" / f"log4j2-{jvm}.properties") for jvm, own in found.items()}


def _evidence(own: UserLogging) -> str:
    return spark_logging.evidence(own.appenders if own.loggers else None) + own.restated()


def job_of(experiment: Experiment, place: Place, staged: staging.StagedData, bundle: Bundle) -> Job:
    """Describe the job: its experiment, and the paths of its files."""
    return Job.of(
        experiment,
        **place.job_fields(),
        library=library(experiment),
        train_dir=staged.train_dir,
        test_path=staged.test_path,
        run_dir=f"{place.top}/dlobd/runs/{bundle.run_id}",
        image_shape=staged.layout.shape,
        dtype=staged.layout.dtype,
        classes=staged.layout.classes,
        spans_dir=str(bundle.path / files.DRIVER_SPANS),
    )
