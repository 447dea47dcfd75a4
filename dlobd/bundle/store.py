"""Run bundles on disk: `<out>/<experiment>/<run>/{run.json, spans/, evidence/, logs/, hashes}`.

    run.json    configuration and results; `dlobd.record` declares it
    spans/      a JSON-lines file per process, written by `dlobd.tracing`, and compressed after the job
    evidence/   records of other programs for the importers
    logs/       other files for the analysis of a failure
    hashes      sha256 of all files, in the format of `sha256sum -c`

Other files in the directory can be regenerated, and may be deleted. Secrets are removed from text before it is written,
so that a bundle can be shared.
"""

import dataclasses
import gzip
import io
import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, BinaryIO, Self, Union, get_args, get_origin, get_type_hints

import msgspec

from dlobd.bundle import reading
from dlobd.bundle.files import COLLECTED, CONTAINER_LOGS, DRIVER_STDOUT, HASHES, PARTS, RUN, WINDOW
from dlobd.bundle.redaction import redact
from dlobd.errors import BundleError, UsageError
from dlobd.fields import plain
from dlobd.paths import replace_file, sha256_of
from dlobd.process_id import ProcessId
from dlobd.record.run import Run
from dlobd.schema import SCHEMA_VERSION
from dlobd.tracing import clock

LATEST = "latest"

PIECE_BYTES, MAX_LINE_BYTES = 4 << 20, 64 << 20
"""Size of the pieces in which a file is copied, and of the longest line that is not cut at a space."""

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4}")
"""Format of run IDs, which sort by time: UTC start time and four random digits."""


class NotCollected(str):
    """Line about evidence that could not be collected, with the name of the missing file."""

    file: str

    def __new__(cls, line: str, file: str) -> Self:
        found = super().__new__(cls, line)
        found.file = file
        return found


@dataclass(frozen=True, slots=True)
class Bundle:
    """The directory of a run."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def spans(self) -> Path:
        return self.path / "spans"

    @property
    def evidence(self) -> Path:
        """Directory of records for importers."""
        return self.path / "evidence"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def write(self, run: Run | Mapping[str, Any]) -> None:
        """Write run.json atomically. Raises BundleError if `run` is not valid or cannot be written."""
        text = json.dumps(run.to_json() if isinstance(run, Run) else run, indent=1, allow_nan=False, default=str) + "\n"
        validate(json.loads(text), str(self.path))
        self._replace(RUN, text)

    def _replace(self, name: str, text: str) -> None:
        try:
            replace_file(self.path / name, text.encode())
        except OSError as error:
            what = f"{self.path}/{name} cannot be written: {error.strerror}."
            raise BundleError(what, f"dlobd import {self.path} [--to DIRECTORY]") from error

    def read(self) -> Run:
        """Read run.json as a Run. Raises the errors of `read_json`."""
        return Run.from_json(self.read_json())

    def read_json(self) -> dict[str, Any]:
        """Read and validate run.json. Raises BundleError if it is missing, damaged or of another schema version."""
        path = self.path / "run.json"
        run = reading.read_json(path, dict[str, Any])
        if isinstance(run, reading.Missing):
            raise BundleError(f"{path} cannot be read: No such file or directory.", "dlobd show latest")
        version = run.get("schema_version") if isinstance(run, dict) else None
        if isinstance(run, reading.Damaged) or type(version) is not int:
            raise BundleError(f"{path} is damaged: it is not the record of a run.")
        if version != SCHEMA_VERSION:
            raise BundleError(
                f"{path} has schema version {version}; this dlobd reads {SCHEMA_VERSION}.",
                "read it with the dlobd that wrote it, or run the experiment again",
            )
        validate(run, str(self.path))
        return _ended(run, self.path)

    def add(self, source: Path, name: str) -> Path:
        """Copy a file into the bundle as `name`, such as `logs/driver.log`, without secrets in its text. The copy needs
        little memory for a file of any size."""
        path = self._place(name)
        part = path.with_name(f".{path.name}.part")  # the source may be the file itself
        try:
            with source.open("rb") as file, part.open("wb") as copy:
                copy.writelines(_redacted(file))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def add_bytes(self, data: bytes, name: str) -> Path:
        """Write `data` into the bundle, without secrets in its text. See `add`."""
        path = self._place(name)
        path.write_bytes(b"".join(_redacted(io.BytesIO(data))))
        return path

    def _place(self, name: str) -> Path:
        path = self.path / name
        if self.path not in path.resolve().parents or Path(name).parts[0] not in PARTS:
            raise ValueError(f"{name!r} does not lie in {', '.join(PARTS)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_json(self, value: object, name: str) -> Path:
        """Write a JSON value into the bundle; dataclasses become objects. See `add`."""
        return self.add_bytes(json.dumps(plain(value), indent=1).encode(), name)

    def redact_driver_logs(self) -> None:
        """Remove secrets from the driver's logs, which are written in place while it runs."""
        for log in sorted(self.logs.glob("driver.*")):
            self.add(log, f"logs/{log.name}")

    def compress_spans(self) -> None:
        """Compress the span files with gzip. A file for which the disk has no room stays as it is."""
        for path in sorted(self.spans.rglob("spans-*.jsonl")):
            part = path.with_name(f".{path.name}.part")
            try:
                with path.open("rb") as file, part.open("wb") as to, gzip.GzipFile("", "wb", 1, to, 0) as copy:
                    shutil.copyfileobj(file, copy, PIECE_BYTES)
                part.replace(path.with_name(f"{path.name}.gz"))
                path.unlink()
            except OSError:
                part.unlink(missing_ok=True)

    def note_collected(self, missing: Sequence[str], metrics: Mapping[str, Any]) -> None:
        """Write missing evidence, metrics and an inventory of all files with their sizes."""
        sizes = {name: (self.path / name).stat().st_size for name in self.files() if name not in (RUN, COLLECTED)}
        absent = [line.file for line in missing if isinstance(line, NotCollected)]
        noted = {"missing": list(missing), "absent": absent, "metrics": metrics, "files": sizes}
        self.add_json(noted, COLLECTED)

    def seal(self) -> None:
        """Write `hashes`, the last file of a bundle. Raises BundleError if it cannot be written."""
        self._replace(HASHES, "".join(f"{sha256_of(self.path / name)}  {name}\n" for name in self.files()))

    @property
    def digest(self) -> str | None:
        """The sha256 of `hashes`, which covers all files; None if the bundle was never sealed.

        A changed bundle can be sealed again, with another digest. Only a digest outside the bundle detects this."""
        path = self.path / "hashes"
        return sha256_of(path) if reading.is_file(path) else None

    def output(self, deploy_mode: str) -> Path | None:
        """Return the file with the stdout of the driver, which in cluster mode is in the first container of the
        application's last attempt; None if it was not collected."""
        containers = sorted((self.path / CONTAINER_LOGS).glob("*_000001/stdout"))
        paths = containers[-1:] if deploy_mode == "cluster" else [self.path / DRIVER_STDOUT]
        return next((path for path in paths if reading.is_file(path)), None)

    def verify(self, only: str = "") -> list[str]:
        """Return the differences from `hashes`, one line per difference; empty if the bundle is unchanged. Of files
        with another name than `only`, if it is given, only the existence is checked.
        Raises BundleError if the bundle was never sealed, or `hashes` is damaged."""
        text = reading.read_text(self.path / "hashes")
        if isinstance(text, reading.Missing):
            why = "its run has not ended, or was killed"
            raise BundleError(f"{self.path} has no hashes: {why}.", f"dlobd import {self.path}")
        lines = [line.partition("  ") for line in text.splitlines()] if isinstance(text, str) else []
        if not lines or not all(separator for _, separator, _ in lines):
            raise BundleError(f"{self.path}/hashes is damaged.")
        recorded = {name: digest for digest, _, name in lines}
        present = set(self.files())
        problems = [f"{name}: missing" for name in recorded if name not in present]
        problems += [f"{name}: not in hashes" for name in sorted(present - set(recorded))]
        for name in sorted(present & set(recorded)):
            if only in ("", name) and sha256_of(self.path / name) != recorded[name]:
                problems.append(f"{name}: changed")
        return sorted(problems)

    def files(self) -> list[str]:
        """Return the names of all files that `hashes` covers."""
        own = [RUN] if reading.is_file(self.path / RUN) else []
        return sorted((*own, *(f"{part}/{name}" for part in PARTS for name in reading.names(self.path / part))))


def _ended(run: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the record with status interrupted if its process has ended without the end of the run."""
    process = run["status"] == "running" and run.get("process")
    if not process or not ProcessId(process["pid"], process["start_ticks"]).ended(process["domain"], clock.domain()):
        return run
    when = "was killed while the job was running" if run["command"] else "was killed before the job was submitted"
    if reading.is_file(path / WINDOW):
        when = f"ended after the job, before its record was stored. Next: dlobd import {path}"
    reason = f"dlobd (pid {process['pid']}) {when}"
    return run | {"status": "interrupted", "reason": reason, "process": None}


def _redacted(file: BinaryIO) -> Iterator[bytes]:
    """Yield the pieces of a file, text without secrets. A piece ends between lines: it has a name and its value."""
    piece = file.read(PIECE_BYTES)
    binary, rest = b"\0" in piece[:8192], b""
    while piece:
        if binary:
            yield piece
        else:
            piece = rest + piece
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
            if not end and len(piece) > MAX_LINE_BYTES:
                end = piece.rfind(b" ") + 1 or len(piece)
            line = piece.rfind(b"\n", 0, max(end - 1, 0)) + 1
            if b"</name>" in piece[line:end]:  # its value may be in the next line
                end = line
            yield redact(piece[:end])
            rest = piece[end:]
        piece = file.read(PIECE_BYTES)
    yield redact(rest)


def create(out: Path, experiment: str, now: datetime | None = None) -> Bundle:
    """Create an empty bundle of `experiment` under `out`. Raises UsageError if the directory cannot be created."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    try:
        (out / experiment).mkdir(parents=True, exist_ok=True)
        while True:
            bundle = Bundle((out / experiment / f"{stamp}-{secrets.token_hex(2)}").resolve())
            try:
                bundle.path.mkdir()
            except FileExistsError:
                continue
            for part in PARTS:
                (bundle.path / part).mkdir()
            return bundle
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise UsageError(f"no bundle can be created in {out}: {why}.", "choose another --out") from error


def at(out: Path, experiment: str, run_id: str) -> Bundle:
    """Return the bundle of run `run_id`; create it if needed. Raises BundleError if the creation fails."""
    bundle = Bundle((out / experiment / run_id).resolve())
    try:
        for part in PARTS:
            (bundle.path / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(f"{bundle.path} cannot be created: {error.strerror}.", "choose another --out") from error
    return bundle


def bundles(out: Path) -> list[Bundle]:
    """Return all bundles under `out`, oldest first."""
    paths = [path for path in out.glob("*/*") if RUN_ID.fullmatch(path.name) and path.is_dir()]
    return [Bundle(path.resolve()) for path in sorted(paths, key=lambda path: path.name)]


def finished(bundle: Bundle) -> bool:
    """Return True if a run has ended, and was not interrupted before its submission; also if its record is damaged."""
    try:
        run = bundle.read_json()
    except BundleError:
        return (bundle.path / RUN).exists()
    return run["status"] != "running" and not (run["status"] == "interrupted" and not run["command"])


def find(ref: str | Path, out: Path) -> Bundle:
    """Return the bundle of `ref`: its path, its run.json, a run ID or a prefix of it, or `latest`, the last finished
    run in `out`. Raises BundleError if there is no such run, or more than one."""
    path = Path(ref)
    if path.name == "run.json" and path.is_file():
        path = path.parent
    if path.is_dir() and ((path / "run.json").exists() or RUN_ID.fullmatch(path.resolve().name)):
        return Bundle(path.resolve())
    every, searched = bundles(out), out.absolute()
    if str(ref) == LATEST:
        if not every:
            raise BundleError(f"there is no run in {searched}.", "dlobd run softmax-mnist")
        if (last := next(filter(finished, reversed(every)), None)) is None:
            raise BundleError(f"no run in {searched} has finished.", f"dlobd show {every[-1].path}")
        return last
    matches = [bundle for bundle in every if str(ref) and bundle.run_id.startswith(str(ref))]
    if len(matches) == 1:
        return matches[0]
    if matches:
        ids = ", ".join(bundle.run_id for bundle in matches)
        raise BundleError(f"{ref} matches {len(matches)} runs in {searched}: {ids}.", "name one of them")
    if str(ref) and path.exists():
        inside = sorted(entry for entry in (*path.glob("*"), *path.glob("*/*")) if RUN_ID.fullmatch(entry.name))
        has = f"is a directory of runs, such as {inside[-1]}" if inside else "is not a bundle: it has no run.json"
        raise BundleError(f"{path} {has}.", "name a bundle, which is a directory with run.json")
    raise BundleError(f"there is no run {ref} in {searched}.", "use a path, a run ID or 'latest', or set --out DIR")


def validate(run: Any, label: str) -> None:
    """Check the schema of a run.json object, and the sums of its layers and their parts.
    Raises BundleError if a check fails; the message names the first violation."""
    if found := difference(run, Run):
        where, what = found
        raise BundleError(f"{label}: run.json does not follow its schema at {where}: {what[:300]}.")
    layers, wall_ns = run.get("layers", ()), run.get("wall_ns")
    if wall_ns is not None:
        total = sum(layer["ns"] for layer in layers) + (run["unattributed_ns"] or 0)
        if layers and total != wall_ns:
            raise BundleError(f"{label}: the layers sum to {total} ns, not to the wall time of {wall_ns} ns.")
    for layer in layers:
        known = [layer[name] for name in ("measured_ns", "between_marks_ns", "named_wait_ns", "unexplained_ns")]
        if sum(known) != layer["ns"]:
            raise BundleError(f"{label}: the parts of {layer['layer']} sum to {sum(known)}, not to {layer['ns']} ns.")


# ---- the shape of a declared class for msgspec, which checks a large record in milliseconds


def difference(value: object, kind: type) -> tuple[str, str] | None:
    """Compare a JSON value with a declared class. Return place and kind of the first difference, or None."""
    try:
        msgspec.convert(value, _shape(kind), dec_hook=_chosen)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        return place.strip(".`").replace("[", ".").replace("]", "").replace(".", "/") or "the top level", what
    return None


class _Choice:
    """Value of one of several classes, `kinds`: msgspec has no unions of classes."""

    kinds: tuple[Any, ...]


def _chosen(choice: type, value: object) -> object:
    assert issubclass(choice, _Choice)
    found = [difference(value, kind) for kind in choice.kinds]
    if None not in found:
        raise ValueError("; ".join(f"{what} at {place}" for place, what in filter(None, found)))
    return choice()


@cache
def _shape(kind: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints, fields = get_type_hints(kind), []
        for field in dataclasses.fields(kind):
            about = field.metadata.get("about")
            own = _limited(_shape(hints[field.name]), about.limits if about else {})
            fields.append((field.name, own) if field.default is dataclasses.MISSING else (field.name, own, None))
        return msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True, kw_only=True)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        classes = tuple(one for one in arguments if dataclasses.is_dataclass(one))
        if len(classes) > 1:
            return type("Choice", (_Choice,), {"kinds": classes})
        return Union[tuple(map(_shape, arguments))]  # noqa: UP007  of a tuple
    if origin is Mapping:
        return dict[str, _shape(arguments[1])]  # type: ignore[misc]
    if origin is tuple:
        return list[_shape(arguments[0])] if arguments[-1] is Ellipsis else tuple[tuple(map(_shape, arguments))]  # type: ignore[misc]
    return str if isinstance(kind, type) and issubclass(kind, str) else kind


def _limited(kind: Any, limits: Mapping[str, Any]) -> Any:
    """Return a type of numbers or texts with the limits of its field."""
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(_limited(one, limits) for one in get_args(kind))]  # noqa: UP007  of a tuple
    if kind in (int, float):
        return Annotated[kind, msgspec.Meta(ge=limits.get("minimum"), le=limits.get("maximum"))]
    return Annotated[kind, msgspec.Meta(pattern=limits["pattern"])] if kind is str and "pattern" in limits else kind
