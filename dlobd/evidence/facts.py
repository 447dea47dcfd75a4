"""Types of the JSON documents of a bundle, with the members that dlobd uses."""

import shlex
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

from dlobd.bundle import files, reading
from dlobd.bundle.reading import Damaged, Members, Missing
from dlobd.errors import BundleError
from dlobd.network.verdict.evidence import Snapshot
from dlobd.record.resources import PageCache
from dlobd.record.run import Noise


class Anchor(TypedDict):
    """The JSON form of a `dlobd.schema.ClockAnchor`."""

    domain: str
    monotonic_ns: int
    wall_ns: int
    error_ns: int


class Window(TypedDict):
    """The client's record of the run (`dlobd.run.submitted_process.Window`). Times are on its monotonic clock."""

    exec_ns: int
    started_ns: int
    exit_ns: int
    exit_code: int
    pid: int
    application_id: str | None
    ended_by: str
    anchors: list[Anchor]
    diagnostics: NotRequired[str]
    by_hand: NotRequired[bool]
    applications: NotRequired[list[str]]


class OwnJob(TypedDict):
    """The configuration of a run of the user's own script."""

    script: str
    script_sha256: NotRequired[str]
    scheduler: NotRequired[str]
    deploy_mode: NotRequired[str]
    workers: NotRequired[int]
    run_dir: NotRequired[str]


class GenerationJob(TypedDict):
    """The configuration of a data set generation by `dlobd.run.generation`."""

    steps: NotRequired[None]
    train_dir: NotRequired[None]
    train_samples: int
    test_samples: int
    workers: int
    scheduler: str
    deploy_mode: str


class TrainingJob(TypedDict):
    """`dlobd.job.description.Job`, with the members that attribution reads."""

    workers: int
    epochs: int
    steps: int
    batch_size: int
    launcher: str
    input: str
    train_dir: str
    exchange: NotRequired[str]
    exchange_servers: NotRequired[int]
    scheduler: NotRequired[str]
    deploy_mode: NotRequired[str]
    fs_uri: NotRequired[str]
    run_dir: NotRequired[str]
    max_steps: NotRequired[int]
    max_seconds: NotRequired[float]
    target_accuracy: NotRequired[float]
    checkpoint_every_steps: NotRequired[int]
    evaluate_every_epochs: NotRequired[int]


class SpanCost(TypedDict):
    """The cost of a span before the run; only `recording` if the recorder was off."""

    recording: Literal["on", "off"]
    span_ns: int | None


class Collected(TypedDict):
    """`missing`: a line per item that was not collected. `absent`: names of missing files. `files`: their sizes."""

    missing: list[str]
    absent: NotRequired[list[str]]
    metrics: dict[str, int | None]
    files: NotRequired[dict[str, int]]


class Resident(TypedDict):
    """Bytes of one component's files: in the page cache, and in total."""

    resident_bytes: int
    total_bytes: int


class BeforeAndAfter(TypedDict):
    """Files of one component in the page cache before and after the run."""

    before: Resident | None
    after: Resident | None


class Daemon(TypedDict):
    """One daemon of the embedded cluster."""

    name: str
    kind: str
    host: str
    ports: dict[str, int]
    alive: bool


class Checksums(TypedDict):
    """Checksums by path: of the local files at staging, and of HDFS after the run."""

    staged: NotRequired[dict[str, str]]
    hdfs: NotRequired[dict[str, str]]


class RmApplication(TypedDict, total=False):
    """The ResourceManager's REST record of an application."""

    id: str
    diagnostics: str
    finalStatus: str
    startedTime: int
    finishedTime: int
    elapsedTime: int
    memorySeconds: int
    applicationTags: str
    trackingUrl: str


class Test(TypedDict):
    """The result of the evaluation after training."""

    accuracy: float
    samples: int
    right: NotRequired[int]


class Evaluation(TypedDict):
    """The result of an evaluation after an epoch."""

    epoch: int
    samples: int
    right: int


class RankResult(TypedDict):
    """The done-marker of one rank."""

    rank: int
    role: str
    index: int
    steps: int
    samples: int
    losses: list[float]
    loop_ns: NotRequired[int | None]
    machine: NotRequired[dict[str, str | int]]  # hardware of the rank
    test: NotRequired[Test | None]
    evaluations: NotRequired[list[Evaluation] | None]


_DATANODE: Any = Members({"ipAddr": str})
_BLOCK: Any = Members({"block": Members({"blockId": int}), "locations": list[_DATANODE]})
_BLOCK_LOCATIONS: Any = Members({"LocatedBlocks": Members({"fileLength": int, "locatedBlocks": list[_BLOCK]})})
"""WebHDFS's response to GET_BLOCK_LOCATIONS."""

DOCUMENTS: dict[str, Any] = {
    files.WINDOW: Window,
    files.JOB: OwnJob | GenerationJob | TrainingJob,
    files.SPAN_COST: SpanCost,
    files.COLLECTED: Collected,
    files.NOISE: Noise,
    files.PAGE_CACHE: PageCache,
    files.ENVIRONMENT_CACHE: dict[str, BeforeAndAfter],
    files.MARKERS: dict[str, str],
    files.BLOCKS: dict[str, _BLOCK_LOCATIONS],
    files.HOSTS: dict[str, str],
    files.CLIENT_INTERFACES: Snapshot,
    files.CHECKSUMS: Checksums,
    files.RM_APPLICATION: RmApplication,
    files.RM_ATTEMPTS: Any,
    files.NM_CONTAINERS: list[Any],
    files.DAEMONS: list[Daemon],
}
"""Name of each JSON document of a bundle -> its type."""

T = TypeVar("T")

WITHOUT = {files.WINDOW: "window: nothing was submitted", files.JOB: f"{files.JOB}: the topology of the job is unknown"}
"""Name of each indispensable document -> the end of the error message."""


class Documents:
    """The documents of one bundle, by name. A document without the type in `DOCUMENTS` is damaged."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle
        self._found: dict[str, Any] = {name: reading.read_json(bundle / name, kind) for name, kind in DOCUMENTS.items()}
        window = self._found[files.WINDOW]
        if isinstance(window, dict) and not window["exec_ns"] <= window["exit_ns"]:
            self._found[files.WINDOW] = Damaged("is damaged: it ends before it begins")

    def has(self, name: str) -> bool:
        """Return True if a document is neither missing nor damaged."""
        return not isinstance(self._found[name], Missing | Damaged)

    def get(self, name: str, otherwise: T) -> T:
        """Return a document; `otherwise` if it is missing or damaged."""
        document = self._found[name]
        return otherwise if isinstance(document, Missing | Damaged) else document

    def needed(self, name: str) -> Any:
        """Return the window or the job. Raises BundleError if it is missing or damaged."""
        match self._found[name]:
            case Missing() if not (self._bundle / "evidence").is_dir():
                what = f"{self._bundle} has no directory evidence/, so nothing can be computed from it."
                raise BundleError(what, f"copy the whole bundle again, or dlobd show {shlex.quote(str(self._bundle))}")
            case Missing():
                raise BundleError(f"{self._bundle} has no {WITHOUT[name]}.", "look at its run.json")
            case Damaged(reason):
                raise BundleError(f"{self._bundle / name} {reason}.", "look at its run.json")
        return self._found[name]

    @property
    def damaged(self) -> dict[str, str]:
        """Name of each damaged document -> the reason."""
        return {name: document.reason for name, document in self._found.items() if isinstance(document, Damaged)}
