"""Finds the training steps among the recorded calls of a user's main function.

Steps are the parts of code marked by `dlobd.step()`. Without any, they are the outermost calls of tf.functions that
write a trainable variable, and Keras's calls of `train_function`. A call that raised an exception is no step.

Several tf.functions may train. Functions that are called in turn, such as generator and discriminator, belong to one
step: the function with the most calls counts. Functions of other parts of the script add up, as in a pre-training and a
training. A function that the script creates again is the same function.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from dlobd import spans as kinds
from dlobd.evidence.recorder import RecordedProcess, RecordedSpan
from dlobd.layers import TENSORFLOW

KERAS = 0
"""Number of the function of Keras's own steps; tf.functions count from 1."""

_CALL = kinds.CALL.partition("{}")[0]


def number_steps(process: RecordedProcess) -> None:
    """Change the spans of steps, in all main functions of a process, to numbered spans `first step` and `step`."""
    for main in [span for span in process.spans if {"role", "index"} <= span.attrs.keys()]:
        inside = [span for span in process.spans if main.start_ns <= span.start_ns < main.end_ns]
        whole = [span for span in inside if not (span.truncated or "error" in span.attrs)]
        marked = [span for span in whole if span.name == kinds.STEP and span.layer == TENSORFLOW]
        calls = [span for span in whole if span.name.startswith(_CALL) and span.attrs.get("trains")]
        steps = sorted(marked or _steps(calls), key=lambda span: span.start_ns)
        for number, span in enumerate(steps):
            if not marked:
                span.attrs = {**span.attrs, "tf_function": span.name.removeprefix(_CALL)}
            span.name, span.call = str(kinds.STEP if number else kinds.FIRST_STEP), number


def count(spans: Sequence[RecordedSpan], observed: bool = True) -> int | None:
    """Return the number of steps among numbered spans; None if there is none, or if a call may be more than one.

    observed: False if hooks are missing, so that only marked steps count."""
    steps = [span for span in spans if span.is_step]
    if not any("function" in span.attrs for span in steps):
        return len(steps) or None
    if not observed:
        return None
    # in eager mode a tf.function runs as Python code, whose variables are not listed
    unclear = [s for s in spans if s.name.startswith(_CALL) and s.attrs.get("trains", True) is None]
    each: list[int | None] = [span.attrs.get("steps", 1) for span in steps]
    known = [number for number in each if number is not None]
    return sum(known) if len(known) == len(each) and not unclear else None


def lengths_ns(spans: Sequence[RecordedSpan]) -> tuple[int | None, list[int]]:
    """Return the length of the first step, and the sorted lengths of the others; unknown if a call has several."""
    steps = [span for span in spans if span.is_step]
    if any(span.attrs.get("steps", 1) != 1 for span in steps):
        return None, []
    first_ns = next((span.end_ns - span.start_ns for span in steps if span.call == 0), None)
    return first_ns, sorted(span.end_ns - span.start_ns for span in steps if span.call)


def _steps(calls: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    """Return the calls of the function that counts, of each group of functions."""
    function = _functions(calls)
    by_function: dict[int, list[RecordedSpan]] = defaultdict(list)
    turns: dict[frozenset[int], int] = defaultdict(int)
    for call in calls:
        by_function[function[call.id]].append(call)
    for before, after in pairwise(calls):
        turns[frozenset((function[before.id], function[after.id]))] += 1
    groups = [{one} for one in by_function]
    for pair, times in turns.items():
        # two functions that are called in turn have two turns a step
        if len(pair) == 2 and times >= min(len(by_function[one]) for one in pair):
            joined = [group for group in groups if group & pair]
            groups = [group for group in groups if not group & pair] + [set().union(*joined)]
    return [call for group in groups for call in max((by_function[one] for one in group), key=len)]


def _functions(calls: Sequence[RecordedSpan]) -> dict[int, int]:
    """Return the function of each call. Functions of one name whose calls do not overlap in time are one function."""
    numbers = {call.id: call.attrs.get("function", KERAS) for call in calls}
    last = {numbers[call.id]: call.end_ns for call in calls}
    same: dict[int, int] = {}
    latest: dict[str, list[int]] = defaultdict(list)  # the last function of each series of one name
    for call in calls:
        number = numbers[call.id]
        if number in same:
            continue
        ended = next((one for one in latest[call.name] if last[one] <= call.start_ns), None)
        if ended is not None:
            latest[call.name].remove(ended)
        latest[call.name].append(number)
        same[number] = number if ended is None else same[ended]
    return {id_: same[number] for id_, number in numbers.items()}
