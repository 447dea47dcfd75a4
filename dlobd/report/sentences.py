"""Sentences about a run for the terminal and the page."""

from collections.abc import Sequence

from dlobd.bundle.noise import ENOUGH_RUNS, UNKNOWN_NOISE, noise_ns, run_variation
from dlobd.compare import power
from dlobd.compare.permutation import ALPHA
from dlobd.findings.base import duration
from dlobd.record.resources import CoreWaits, EnvironmentCache, PageCache, ResourceUse
from dlobd.record.run import Finding, LostWork, Noise, Plane, RecordingCost, Run, TimeToAccuracy
from dlobd.report import text
from dlobd.report.summary import missing_ns, seen_ns, share
from dlobd.run.machine_noise import ALL

FINDINGS_TITLE = "How to make it faster"

MOST_MESSAGES = 3
"""Largest number of error messages in the line on lost work."""

SOFT = "in software: its speed is not that of RDMA hardware"


# ---- the result


def evidence(run: Run) -> str:
    """Format the quality of the evidence as fractions of the wall time; "" without a breakdown."""
    if not (run.wall_ns and run.layers):
        return ""
    shares = (share(run, ns) for ns in (*seen_ns(run), run.unexplained_ns))
    measured, between, waits, unknown = (text.percentage(part, 1) for part in shares)
    unexplained = f"{run.unexplained_ns / 1e9:.1f} s ({unknown}) unexplained"
    return f"Evidence: {measured} measured, {waits} known waits, {between} inferred, {unexplained}."


def total(run: Run) -> str:
    """Compare the sum of the parts with the wall time, or explain why the run has no breakdown."""
    if run.wall_ns is None:
        return "No breakdown: the run has no window, so there is no wall time to split."
    missing, window = missing_ns(run), run.window.name if run.window else "window unknown"
    return f"total {run.wall_ns - missing:,} ns {'!=' if missing else '=='} wall {run.wall_ns:,} ns: {window}"


# ---- findings


def no_finding(run: Run) -> str:
    """Format the statement that no finding is above noise, or that the findings are unknown."""
    if any(one.part in ("trace", "attribution", "findings") for one in run.omitted):
        return "The findings are unknown: see the warnings."
    return f"No setting is expected to save more than run-to-run noise: {noise(run)}."


def lost_work(rows: Sequence[LostWork]) -> str:
    """Format the time of task attempts without a used result, their causes and their error messages; "" without any."""
    if not rows:
        return ""
    attempts, causes = sum(row.attempts for row in rows), ", ".join(f"{row.attempts} {row.cause}" for row in rows)
    known = [row.ns for row in rows if row.ns is not None]
    length = f"{sum(known) / 1e9:.1f} s" if len(known) == len(rows) else "unknown time"
    errors = "".join(f"; {one}" for row in rows for one in row.messages[:MOST_MESSAGES])
    return (
        f"Lost work: {length} in {attempts} task attempt{'s' * (attempts > 1)} without a used result: {causes}{errors}"
    )


def noise(run: Run) -> str:
    """Format the threshold above which a saving is not noise, and its source."""
    walls_ns = run.noise.earlier_walls_ns or () if run.noise else ()
    assumed = (run.noise.assumed if run.noise else None) or UNKNOWN_NOISE
    length = f"{noise_ns(walls_ns, run.wall_ns or 0, assumed) / 1e9:.1f} s"
    if run_variation(walls_ns) is not None:
        return f"{length}, from {len(walls_ns)} earlier runs on this machine"
    return f"{length}, assumed as {text.percentage(assumed)} of the wall time: too few earlier runs on this machine"


def finding(row: Finding) -> str:
    """Format a finding with the bounds of its saving."""
    return f"{row.says} {saving(row)}"


def saving(row: Finding) -> str:
    """Format the bounds of a finding's saving as a sentence."""
    return f"Saves {saving_range(row)}."


def saving_range(row: Finding) -> str:
    """Format the bounds of a finding's saving."""
    most, least = duration(row.saves_ns), duration(row.lo_ns)
    unit = most.partition(" ")[2]
    return f"up to {most}" if least == most else f"{least.removesuffix(f' {unit}')} to {most}"


# ---- circumstances


def circumstances(run: Run) -> list[str]:
    """List the circumstances of the measurement: checks, noise, caches."""
    lines = []
    if run.checks:
        passed = sum(check.verdict == "pass" for check in run.checks)
        lines.append(f"checks: {passed} of {len(run.checks)} passed")
    for verdict, word in (("fail", "failed"), ("unknown", "undecided")):
        lines += [f"check {word}: {check.message} ({check.code})" for check in run.checks if check.verdict == verdict]
    if run.noise:
        machine = "" if run.noise.machine == ALL else f" ({run.noise.machine})"
        lines.append(f"noise: {run_line(run.noise)}{machine}")
    if run.page_cache:
        lines.append(_page_cache(run, run.page_cache))
    if run.environment_cache:
        lines.append(_environment(run.environment_cache))
    return lines


def _page_cache(run: Run, cache: PageCache) -> str:
    files = "training files" if run.configuration.scheduler == "none" else "HDFS blocks of the training files"
    how = {"as-is": "as found", "warm": "read before the run", "cold": "dropped before the run"}[cache.asked]
    if cache.asked == "cold" and cache.resident_bytes:
        how += "; the rest could not be dropped"
    resident, size = cache.resident_bytes / 1e6, cache.total_bytes / 1e6
    state = f": {cache.state}" if cache.state else ""
    return f"{files} in the page cache: {resident:.1f} of {size:.1f} MB ({how}){state}"


def _environment(cache: EnvironmentCache) -> str:
    known = [
        f"{part.part} {part.there_bytes / 1e6:.0f} of {part.after_bytes / 1e6:.0f} MB ({part.state})"
        for part in cache.parts
        if part.state and part.there_bytes is not None and part.after_bytes is not None
    ]
    return f"environment in the page cache before the run: {', '.join(known) or 'unknown'}"


def recording(overhead: RecordingCost | None) -> str:
    """Format dlobd's own cost; estimates are number of spans x cost per span."""
    if overhead is None:
        return "recording: its cost is unknown"
    if overhead.recording == "off":
        return "recording: off"
    lost = f", {overhead.left_out:,} left out" if overhead.left_out else ""
    lost += f", {overhead.lost_lines:,} lines lost" if overhead.lost_lines else ""
    if overhead.span_cost_ns is None or overhead.chain_ns is None:
        return f"recording: {overhead.spans:,} spans{lost}; their cost is unknown"
    parts = [f"{_cost(overhead.chain_ns, overhead.chain_share)} of the wall time"]
    if (loop := overhead.loop) and loop.ns is not None:
        parts.append(f"{_cost(loop.ns, loop.share)} of the {text.seconds(loop.length_ns)} s loop of {loop.rank}")
    if overhead.flush_cpu_ns is not None:
        parts.append(f"{overhead.flush_cpu_ns / 1e9:.4f} s of CPU for writing in all processes")
    spans = f"{overhead.spans:,} spans x {overhead.span_cost_ns / 1e3:.1f} us{lost}"
    return f"recording: {spans}; about {', '.join(parts)}"


def _cost(ns: int, share: float | None) -> str:
    return f"{ns / 1e9:.4f} s" + (f" ({text.percentage(share, 2)})" if share is not None else "")


# ---- training


def training(run: Run) -> list[str]:
    """Format throughput and time to the target accuracy."""
    lines = []
    if run.throughput:
        found = run.throughput
        spread = f"+/- {text.plain(found.uncertainty)} (jitter = {text.plain(found.jitter)})"
        lines.append(
            f"throughput after {found.warmup_steps} steps: samples/s: {text.plain(found.mean)} {spread}, "
            f"{found.steps} steps of {found.samples_per_step} samples; spread within this run"
        )
    if run.time_to_accuracy:
        lines.append(_reached(run, run.time_to_accuracy))
    return lines


def _reached(run: Run, found: TimeToAccuracy) -> str:
    if found.from_submit_ns is None:
        return f"target accuracy {found.target:.4f} was not reached: {found.reason}"
    touched, since_ns = run.first_touch, found.from_first_touch_ns
    second = "unknown from the first touch of the data"
    if touched and since_ns is not None:
        source = f"{touched.source}, to {text.short(touched.resolution_ns)}"
        second = f"{text.seconds(since_ns)} s from the first touch of the data ({source})"
    return (
        f"time to accuracy {found.target:.4f}, reached by epoch {found.epoch}: "
        f"{text.seconds(found.from_submit_ns)} s from submit, {second}"
    )


# ---- resources and transport


def resource_line(used: ResourceUse) -> str:
    """Format CPU and memory use of the whole window."""
    host = used.hosts[0]
    busy = text.percentage(host.cpu_busy_ns / (host.sampled_ns * host.cores), 1) if host.sampled_ns else "unknown %"
    return (
        f"resources: CPU {busy} busy of {host.cores} cores, at most {_gb(host.memory_used_peak_bytes)} of "
        f"{_gb(host.memory_bytes)} GB of memory in use (--view resources)"
    )


def resource_lines(used: ResourceUse) -> list[str]:
    """Format the use of GPUs, the machine's CPU time, and details of the sampling."""
    host = used.hosts[0]
    lines = [
        f"GPU {gpu.index}, {gpu.name}: "
        f"{'unknown %' if gpu.busy_share is None else text.percentage(gpu.busy_share, 1)} busy, at most "
        f"{'unknown' if gpu.memory_used_peak_bytes is None else _gb(gpu.memory_used_peak_bytes)} of "
        f"{_gb(gpu.memory_bytes)} GB in use"
        for gpu in used.gpus
    ]
    processes_ns = host.processes_cpu_ns + host.unseen_cpu_ns
    share = f"{text.percentage(processes_ns / host.cpu_busy_ns, 1)}, " if host.cpu_busy_ns else ""
    lines.append(
        f"CPU time: {text.seconds(host.cpu_busy_ns)} s of the machine; processes used {text.seconds(processes_ns)} s "
        f"({share}{text.seconds(host.unseen_cpu_ns)} s between samples). Other virtual machines used "
        f"{text.seconds(host.cpu_stolen_ns)} s."
    )
    lines.append(
        f"Sampled every {text.short(used.period_ns)}, {used.samples} times, at most {text.short(used.longest_gap_ns)} "
        f"apart; sampling took {text.seconds(used.cost_ns)} s of CPU."
    )
    layers_ns = sum(row.ns for row in used.layers)
    if host.sampled_ns < layers_ns:
        lines.append(f"not sampled: {text.seconds(layers_ns - host.sampled_ns)} s of the window.")
    return lines


def pressure(waits: CoreWaits) -> list[str]:
    """Format stalls of the hosts, and CPU use by other processes."""
    lines = [
        f"{host.host}: in {text.seconds(host.sampled_ns)} s, at least one task waited {text.seconds(host.cpu_ns)} s "
        f"for a core and {text.seconds(host.io_ns)} s for a disk."
        for host in waits.pressure
    ]
    return [*lines, other_processes(waits)]


def other_processes(waits: CoreWaits) -> str:
    """Format the CPU time of other processes, and the resulting delay of the run."""
    if waits.held_up_ns is None or waits.foreign_cpu_ns is None:
        return "Other processes: unknown, because some of the run's own processes were not visible."
    busy = "; the machine was busy" if waits.busy else ""
    return (
        f"Other processes used {text.seconds(waits.foreign_cpu_ns)} s of CPU, which delayed the run by about "
        f"{text.seconds(waits.held_up_ns)} s{busy}."
    )


def transport(plane: Plane) -> str:
    """Format the transport of a plane: "TCP over lo (as configured)"."""
    names = {"tcp": "TCP", "shm": "shared memory", "ipoib": "IPoIB"}
    where = ", ".join(filter(None, (plane.device, plane.interface)))
    line = names.get(plane.kind, plane.kind) + (f" over {where}" if where else "")
    if plane.soft:
        line += f", Soft-RoCE {SOFT}"
    if not plane.asked:
        return line
    if plane.agrees is None:
        return f"{line} (configured: {plane.asked}; agreement unknown)"
    return f"{line} (as configured)" if plane.agrees else f"{line} (NOT as configured: {plane.asked})"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f}"


# ---- noise of a machine


def machine_line(noise: Noise) -> str:
    """Format a noise measurement of the machine at the current moment."""
    return f"{_loop(noise)}; {_wait(noise)} at the moment."


def run_line(noise: Noise) -> str:
    """Format the variation of earlier runs, and the smallest difference that `ENOUGH_RUNS` runs of each side detect."""
    walls = noise.earlier_walls_ns or ()
    if len(walls) < 2:
        return f"run-to-run variation unknown ({len(walls)} earlier runs). {_loop(noise)}; {_wait(noise)}"
    took = f"{len(walls)} earlier runs took {min(walls) / 1e9:.1f} to {max(walls) / 1e9:.1f} s"
    variation, share = run_variation(walls), smallest_share(noise, ENOUGH_RUNS)
    if variation is None or share is None:
        return f"{took}. More runs are needed for the smallest detectable difference. {_wait(noise)}"
    return (
        f"{took}, standard deviation {text.percentage(variation, 1)}; {ENOUGH_RUNS} runs of each side detect "
        f"{text.percentage(share, 1)} or more; {_wait(noise)}"
    )


def smallest_share(noise: Noise, runs: int) -> float | None:
    """Compute the smallest difference that `runs` runs of each side detect, as a fraction of the wall time."""
    detectable = power.multiple(runs, runs, False, ALPHA)
    variation = run_variation(noise.earlier_walls_ns or ())
    return None if variation is None or detectable is None else detectable * variation


def _wait(noise: Noise) -> str:
    return f"timers fire up to {(noise.sleep_over_p99_ns + noise.loopback_p99_ns) / 1e6:.2f} ms late"


def _loop(noise: Noise) -> str:
    variation = text.percentage(noise.loop_variation, 1)
    return f"CPU loops of 25 ms vary by {variation}, which does not predict the variation of runs"
