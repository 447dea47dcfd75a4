"""Places of the processes: this machine, network namespaces, agents, tasks of Spark, or a job on a YARN cluster."""

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

from dlobd.bundle import store
from dlobd.channel import Channel
from dlobd.errors import RunFailed, UsageError
from dlobd.experiment import own_job
from dlobd.micro import agent, results, study
from dlobd.micro.hosts import HERE, INTERFACE, hosts
from dlobd.micro.launch import Plan, Site
from dlobd.micro.request import Request
from dlobd.micro.results import NAMESPACES, THIS, Results
from dlobd.paths import shipped
from dlobd.run import provenance, runner
from dlobd.run.place.external import ExternalCluster
from dlobd.run.progress import Progress

SPARK, YARN = "spark", "yarn"

INTERRUPTED = "Interrupted: not all launches ran."

_RATE = re.compile(r"(?P<number>\d+(\.\d+)?)((?P<prefix>[kmgt])(?P<binary>i)?)?(?P<unit>bit|bps)?")

SECRET = "DLOBD_MICRO_SECRET"
"""Environment variable with the secret of agents and coordinator."""


def measure(request: Request, on: str, link: str, progress: Progress) -> Results:
    """Measure at a place. Ctrl-C or SIGTERM end the launch in progress; the completed launches are kept.

    Args:
        link: rate of the hosts' links, for namespaces.

    Raises UsageError, SetupError: the place or the request is impossible.
    """
    if link and bytes_per_s(link) is None:
        raise UsageError(f"--link: {link!r} is no rate.", "write it as in --link 1gbit")
    if on == NAMESPACES and any(Channel(channel).transport == "shm" for channel in request.channels):
        raise UsageError("Shared memory is within one host, and namespaces are several.", "use --on here")
    here = provenance.platform()
    machine = f"{here['processor']}, {here['cores']} cores, {here['distribution']}"
    stopped = Event()
    before = {one: signal.signal(one, lambda *_: stopped.set()) for one in (signal.SIGINT, signal.SIGTERM)}
    with ExitStack() as opened:
        for one, handler in before.items():
            opened.callback(signal.signal, one, handler)
        sites, channels, remark = opened.enter_context(_sites(on, request.processes, link))
        plans, left_out = request.plans(channels)
        notes = tuple(filter(None, (remark, *left_out)))
        found = results.empty(machine, on, len(os.sched_getaffinity(0)))
        found = replace(found, notes=notes, memcpy_bytes_per_s=study.memcpy_bytes_per_s())
        work = [(plan, ends) for plan in plans for ends in chosen(plan, request, sites)]
        found = study.run(found, work, request.repeats, progress, stopped)
    if link and (rate := bytes_per_s(link)):
        over_link = (replace(one, link_bytes_per_s=rate) if one.route.device else one for one in found.launches)
        found = replace(found, launches=tuple(over_link))
    return replace(found, notes=(*found.notes, INTERRUPTED)) if stopped.is_set() else found


def measure_on_yarn(
    request: Request, words: Sequence[str], out: Path, cluster: ExternalCluster | None, progress: Progress
) -> Results:
    """Measure in a job on a YARN cluster, and read the results from its output. `words`: those of the command.

    Raises RunFailed: the job printed no results; and the errors of a run.
    """
    script = str(shipped("jobs") / "micro.py")
    job = own_job.from_script(script, [*words, "--json"], [f"workers={request.processes}"])
    bundle = store.Bundle(runner.run(job, out, progress, cluster))
    output = bundle.output(job.deploy_mode)
    lines = output.read_text().splitlines() if output else []
    found = next((line for line in lines if line.startswith(results.BEGIN)), None)
    if found is None:
        why = bundle.read().reason or "its output has no results"
        raise RunFailed(f"The job on YARN failed: {why}", f"dlobd show {bundle.path}")
    return results.parsed(found)


def bytes_per_s(rate: str) -> float | None:
    """Return a rate in the syntax of tc(8), such as 1gbit, in bytes per second; None if it is no such rate."""
    found = _RATE.fullmatch(rate.lower())
    if not found:
        return None
    base = 1024 if found["binary"] else 1000
    value: float = float(found["number"]) * base ** " kmgt".index(found["prefix"] or " ")
    return value if found["unit"] == "bps" else value / 8


def secret() -> bytes:
    """Return the secret of the agents. Raises UsageError: it is not set."""
    if not (text := os.environ.get(SECRET)):
        raise UsageError(f"{SECRET} is not set.", f"set {SECRET} to the same secret on all hosts")
    return text.encode()


def chosen(plan: Plan, request: Request, sites: Sequence[Site]) -> list[Sequence[Site]]:
    """Return the sites of the processes of a plan, or of each of its measurements between two hosts."""
    if plan.route.exchange:
        return [sites[: request.ranks]]
    if plan.points[0].benchmark == "ps":
        return [sites[: request.servers + request.workers]]
    if not request.pairs:
        return [sites[:2]]
    hosts = {site.name: site for site in sites}
    if len(hosts) < 2:
        raise UsageError(f"--pairs needs several hosts, and all processes are on {sites[0].name}.", "omit --pairs")
    return [(one, other) for one in hosts.values() for other in hosts.values() if one is not other]


@contextmanager
def _sites(on: str, count: int, link: str) -> Iterator[tuple[Sequence[Site], tuple[str, ...], str]]:
    """Yield the sites of a place, its default channels, and a remark on its hosts."""
    if on == THIS:
        yield [HERE] * count, ("tcp", "shm"), ""
    elif on == NAMESPACES:
        with hosts(count, link) as made:
            yield made, (f"tcp@{INTERFACE}",), ""
    elif on == SPARK:
        with agent.spark_sites(count) as tasks:
            yield tasks, agent.default_channels(tasks), agent.one_host(tasks)
    elif ":" in on:
        agents = [agent.connect(address, secret()) for address in on.split(",")]
        found = agent.spread([agents[number % len(agents)] for number in range(max(count, len(agents)))])
        yield found, agent.default_channels(agents), agent.one_host(agents)
        for one in agents:
            one.wire.close()
    else:
        choice = f"{THIS}, {NAMESPACES}, {YARN}, {SPARK}, or agents as HOST:PORT,HOST:PORT"
        raise UsageError(f"Unknown place {on!r}.", f"choose {choice}")
