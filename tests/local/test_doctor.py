"""What a machine lacks is said part by part, with a next step; nothing is started or fetched."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlobd import cli
from dlobd.channel import Channel
from dlobd.errors import SetupError, UsageError
from dlobd.network.verdict.evidence import TransportEvidence, record
from dlobd.run.preflight import Diagnosis, channels
from dlobd.run.preflight import cluster as external
from dlobd.run.preflight import machine as doctor
from dlobd.run.preflight.channels import Machine
from tests.counter_trees import GID, MB, RC, Host, put, traffic
from tests.hadoop_conf import write
from tests.web import answering


@pytest.fixture(autouse=True)
def empty_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, so that what a person has does not count; its path is short, as sockets below it need."""
    cache = tmp_path_factory.mktemp("c")
    monkeypatch.setenv("DLOBD_CACHE", str(cache))
    for name in ("DLOBD_JARS", "DLOBD_PORT_BASE", "DLOBD_JAVA", "DLOBD_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    return cache


def found(part: str) -> Diagnosis:
    (one,) = [diagnosis for diagnosis in doctor.examine() if diagnosis.part == part]
    return one


def test_every_part_is_examined() -> None:
    diagnoses = doctor.examine()
    parts = [diagnosis.part for diagnosis in diagnoses]
    assert parts[: len(doctor.PARTS)] == [part for part, _ in doctor.PARTS]
    assert parts[len(doctor.PARTS)].startswith("RDMA")
    assert len(parts) == len(set(parts))
    assert found("Python").verdict == found("kernel").verdict == found("clocks").verdict == "ok"
    assert all(diagnosis.remedy for diagnosis in diagnoses if diagnosis.verdict != "ok")


def test_what_a_run_brings_itself_is_absent_not_broken() -> None:
    assert (found("Hadoop jars").verdict, found("cluster").verdict) == ("absent", "absent")
    assert "4 of 4" in found("Hadoop jars").what


def test_own_jars_that_are_not_there_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLOBD_JARS", str(tmp_path))
    assert found("Hadoop jars").verdict == "broken"
    assert "unset DLOBD_JARS" in found("Hadoop jars").remedy


def test_jars_with_a_wrong_checksum_are_broken(empty_cache: Path) -> None:
    (empty_cache / "jars").mkdir(parents=True)
    for jar in doctor.JARS:
        (empty_cache / "jars" / jar.file_name).write_bytes(b"no jar")
    assert found("Hadoop jars").verdict == "broken"
    assert all(jar.file_name in found("Hadoop jars").what for jar in doctor.JARS)


def test_a_taken_port_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port and the next step are those that a run would print."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("DLOBD_PORT_BASE", str(min(port, 65000)))
        one = found("ports")
    assert one.verdict == "broken" or port > 65000
    assert "DLOBD_PORT_BASE" in one.remedy or port > 65000


def test_settings_that_make_no_sense_are_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the errors that a run would end with."""
    monkeypatch.setenv("DLOBD_PORT_BASE", "many")
    monkeypatch.setenv("DLOBD_JAVA", str(tmp_path / "nowhere"))
    assert "is not a port number" in found("ports").what
    assert found("Java").verdict == "broken"


def test_what_others_can_connect_to_is_told() -> None:
    programs = " ".join(listener.program for listener in doctor.LISTENERS)
    for name in ("HDFS", "YARN", "Spark", "reservation server", "queue manager", "gRPC", "key-value store", "channel"):
        assert name in programs
    assert all(listener.address and listener.protected for listener in doctor.LISTENERS)
    assert "127.0.0.1" not in " ".join(listener.address for listener in doctor.listeners(Path("conf")))


# ---- an external cluster


HADOOP = {
    "/webhdfs/v1/?op=GETFILESTATUS": {"FileStatus": {}},
    "/webhdfs/v1/?op=GETHOMEDIRECTORY": {"Path": "/user/somebody"},
    "/ws/v1/cluster/info": {"clusterInfo": {"haState": "ACTIVE", "hadoopVersion": "3.5.0"}},
    "/ws/v1/cluster/metrics": {"clusterMetrics": {"activeNodes": 2}},
}


def conf_of(directory: Path, namenode: int, manager: int) -> Path:
    """A HADOOP_CONF_DIR with these ports of this machine."""
    return write(
        directory,
        core={"fs.defaultFS": "hdfs://127.0.0.1:1"},
        hdfs={"dfs.namenode.http-address": f"127.0.0.1:{namenode}"},
        yarn={"yarn.resourcemanager.webapp.address": f"127.0.0.1:{manager}"},
    )


def told(path: str) -> dict[str, Any] | None:
    """Return the answer of NameNode and ResourceManager."""
    return HADOOP.get(path.partition("&user")[0])


def port_of(netloc: str) -> int:
    return int(netloc.rpartition(":")[2])


@pytest.fixture
def hadoop() -> Iterator[int]:
    """The port of a web server that says what NameNode and ResourceManager say."""
    with answering(told) as netloc:
        yield port_of(netloc)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def there(conf: Path) -> dict[str, Diagnosis]:
    return {one.part: one for one in doctor.examine(conf) if one.remote}


def test_a_cluster_that_answers_is_ok(tmp_path: Path, hadoop: int) -> None:
    diagnoses = doctor.examine(conf_of(tmp_path, hadoop, hadoop))
    found = {one.part: one for one in diagnoses}
    assert not found.keys() & set(doctor.EMBEDDED)
    assert [found[part].verdict for part in ("NameNode", "ResourceManager", "NodeManagers")] == ["ok"] * 3
    assert "(dfs.namenode.http-address) answers" in found["NameNode"].what
    assert "/user/somebody" in found["NameNode"].what
    assert found["NodeManagers"].what == "2 NodeManagers are running"
    assert (found["container logs"].verdict, bool(found["container logs"].remedy)) == ("absent", True)


def test_a_cluster_that_does_not_answer_is_broken(
    tmp_path: Path, hadoop: int, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "ANSWER_S", (0.2, 0.2))
    found = there(conf_of(tmp_path, silent, hadoop))
    assert (found["NameNode"].verdict, found["ResourceManager"].verdict) == ("broken", "ok")
    assert f"127.0.0.1:{silent} (dfs.namenode.http-address): did not answer within" in found["NameNode"].what
    assert found["NameNode"].remedy
    found = there(conf_of(tmp_path, hadoop, silent))
    assert (found["NameNode"].verdict, found["ResourceManager"].verdict) == ("ok", "broken")
    assert found["NodeManagers"].verdict == "broken"


def test_a_cluster_without_nodes_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HADOOP, "/ws/v1/cluster/metrics", {"clusterMetrics": {"activeNodes": 0}})
    with answering(told) as netloc:
        found = there(conf_of(tmp_path, port_of(netloc), port_of(netloc)))
    assert (found["NodeManagers"].verdict, found["NodeManagers"].what) == ("broken", "no NodeManager is running")


def test_the_exit_code_is_that_of_a_run() -> None:
    """3 because of this machine, 4 because of the external cluster; absent and optional parts do not count."""
    java, namenode = Diagnosis("Java", "broken", ""), Diagnosis("NameNode", "broken", "", remote=True)
    rdma = Diagnosis("RDMA access", "broken", "", optional=True)
    assert doctor.exit_code([Diagnosis("Java", "ok", ""), Diagnosis("cluster", "absent", ""), rdma]) == 0
    assert doctor.exit_code([java, rdma]) == 3
    assert doctor.exit_code([namenode, rdma]) == 4
    assert doctor.exit_code([java, namenode]) == 3


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration that cannot be used is refused as by a run; one that can gives a line a part."""
    assert cli.main(["doctor", "--hadoop-conf", str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    conf = conf_of(tmp_path, 1, 1)
    assert cli.main(["doctor", "--hadoop-conf", str(conf)]) in (3, 4)  # 3 on a machine without Java 17
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " NameNode " in line]
    assert line.startswith("broken")
    assert "refused the connection" in line
    assert "Next: check that this machine can reach that address" in line


# ---- RDMA


UCX_HERE = "libucp 1.20.1, with verbs"


def machine(root: Path, soft: bool = False, **changes: Any) -> Machine:
    """A machine with one device that can be used, and IPoIB on it where it is hardware."""
    host = Host(root)
    host.interface("eth0", "10.0.0.1")
    if soft:
        host.device("rxe0", "Ethernet", "eth0", soft=True)
    else:
        host.interface("ib0", "10.1.0.1", 32, 2044)
        put(root / "sys/class/net/ib0/mode", "datagram")
        host.device("mlx5_0")
    for name in ("eth0", "ib0"):
        if (root / "sys/class/net" / name).is_dir():
            put(root / "sys/class/net" / name / "operstate", "up")
    for node in ("uverbs0", "rdma_cm"):
        put(root / "dev/infiniband" / node, "")
    put(root / "usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so", "")
    (root / "dev/shm").mkdir()

    stands_at = itertools.count(7_000, 200 * MB // (1024 if soft else 4))

    def carried(device: str) -> TransportEvidence:
        name = device.partition(":")[0]
        host.set_port(name, next(stands_at))
        before = host.read()
        host.set_port(name, next(stands_at))
        attrs = record(0, "ucx", before, lanes=[f"rc/{device}"], traffic=traffic("verbs"), after=host.read())
        return TransportEvidence.from_attrs(attrs)

    whole: dict[str, Any] = {
        "addresses": host.addresses and {name: [address] for name, address in host.addresses.items()},
        "locked_limit_bytes": lambda: None,
        "load": lambda name: name,
        "ucx": lambda: UCX_HERE,
        "carry_bytes": carried,
    }
    return Machine(root, **(whole | changes))


def of(one: Machine) -> dict[str, Diagnosis]:
    """Its diagnoses by part; all that is not ok has a next step."""
    diagnoses = {diagnosis.part: diagnosis for diagnosis in channels.examine(one)}
    assert all(diagnosis.remedy for diagnosis in diagnoses.values() if diagnosis.verdict != "ok")
    return diagnoses


def need(one: Machine, text: str, allow_soft: bool = False) -> Diagnosis:
    return channels.required(Channel.parse(text), channels.examine(one), allow_soft, one)


def test_a_machine_without_rdma_says_so_in_one_line(tmp_path: Path) -> None:
    (one,) = channels.examine(Machine(tmp_path, {}))
    assert (one.part, one.verdict, one.what) == ("RDMA", "absent", "no device in /sys/class/infiniband")
    assert doctor.exit_code([one]) == 0


def test_a_machine_with_an_adapter_is_ok_in_every_part(tmp_path: Path) -> None:
    found = of(machine(tmp_path))
    assert {diagnosis.verdict for diagnosis in found.values()} == {"ok"}
    assert list(found) == [
        "RDMA devices",
        "RDMA port mlx5_0:1",
        "RDMA hardware",
        "RDMA access",
        "IPoIB",
        "UCX",
        "RDMA transfer mlx5_0:1",
    ]
    assert "ACTIVE, LinkUp, InfiniBand, 100 Gb/sec (4X EDR)" in found["RDMA port mlx5_0:1"].what
    assert "ib0 up, datagram, MTU 2044, 10.1.0.1" in found["IPoIB"].what
    assert "mlx5_0:1 (InfiniBand) counted" in found["RDMA transfer mlx5_0:1"].what


def test_soft_roce_is_functional_only_and_has_no_rate(tmp_path: Path) -> None:
    found = of(machine(tmp_path, soft=True))
    assert (found["RDMA hardware"].verdict, found["RDMA transfer rxe0:1"].verdict) == ("absent", "ok")
    assert "functional only" in found["RDMA hardware"].what
    assert "Gb/sec" not in " ".join(diagnosis.what for diagnosis in found.values())


def _down(root: Path) -> None:
    put(root / "sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN")
    put(root / "sys/class/infiniband/mlx5_0/ports/1/phys_state", "3: Disabled")


def _without_manager(root: Path) -> None:
    put(root / "sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT")


def _without_gid(root: Path) -> None:
    put(root / "sys/class/infiniband/mlx5_0/ports/1/gids/0", GID.replace(GID, "0000:" * 7 + "0000"))


def _without_verbs(root: Path) -> None:
    (root / "dev/infiniband/uverbs0").unlink()


def _without_cm(root: Path) -> None:
    (root / "dev/infiniband/rdma_cm").unlink()


def _without_provider(root: Path) -> None:
    (root / "usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so").unlink()


def _no_library(name: str) -> object:
    raise OSError(f"{name}: cannot open shared object file")


def _no_ucx() -> str:
    raise SetupError("libucp.so.0 of mpich has no libuct_ib.", "install mpich")


def _no_bytes(device: str) -> TransportEvidence:
    raise OSError("no end within 60 s")


@pytest.mark.parametrize(
    ("spoil", "changes", "part", "says"),
    [
        (_down, {}, "RDMA port mlx5_0:1", "DOWN, Disabled"),
        (_without_manager, {}, "RDMA port mlx5_0:1", "no subnet manager"),
        (_without_gid, {}, "RDMA port mlx5_0:1", "the port has no GID"),
        (_without_verbs, {}, "RDMA access", "no uverbs device"),
        (_without_cm, {}, "RDMA access", "rdma_cm cannot be read"),
        (None, {"locked_limit_bytes": lambda: 8 << 20}, "RDMA access", "may lock 8192 KB"),
        (None, {"load": _no_library}, "RDMA access", "libibverbs.so.1 cannot be loaded"),
        (_without_provider, {}, "RDMA access", "no provider"),
        (None, {"ucx": _no_ucx}, "UCX", "has no libuct_ib"),
        (None, {"carry_bytes": _no_bytes}, "RDMA transfer mlx5_0:1", "no end within 60 s"),
    ],
)
def test_what_is_broken_is_named_with_a_next_step(
    tmp_path: Path, spoil: Any, changes: dict[str, Any], part: str, says: str
) -> None:
    one = machine(tmp_path, **changes)
    if spoil:
        spoil(tmp_path)
    found = of(one)
    assert (found[part].verdict, says in found[part].what) == ("broken", True), found[part]
    assert doctor.exit_code(list(found.values())) == 0
    missing = need(one, "rdma")
    assert missing.verdict == "broken"
    assert says in missing.what
    assert doctor.exit_code([*found.values(), missing]) == 3


def test_a_transfer_that_no_device_counted_is_not_rdma(tmp_path: Path) -> None:
    def silent(device: str) -> TransportEvidence:
        seen = Host(tmp_path).read()
        return TransportEvidence.from_attrs(record(0, "ucx", seen, lanes=[RC], traffic=traffic("verbs"), after=seen))

    one = of(machine(tmp_path, carry_bytes=silent))["RDMA transfer mlx5_0:1"]
    assert one.verdict == "broken"
    assert one.what.startswith("NOT RDMA")


def test_what_is_required_is_there(tmp_path: Path) -> None:
    one = machine(tmp_path)
    for text in (
        "rdma",
        "rdma@mlx5_0",
        "rdma@mlx5_0:1",
        "ipoib",
        "ipoib@ib0",
        "tcp",
        "tcp@eth0",
        "shm",
        "ipoib@10.1.0.0/24",
    ):
        assert need(one, text).verdict == "ok", text
    assert doctor.exit_code([need(one, "rdma"), need(one, "tcp@eth0")]) == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rdma@mlx5_1", "did you mean 'mlx5_0:1'"),
        ("ipoib@eth0", "is ethernet, not infiniband"),
        ("ipoib@ib1", "did you mean 'ib0'"),
        ("tcp@eth9", "did you mean 'eth0'"),
        ("tcp@10.77.2.0/24", "no interface with an address in 10.77.2.0/24; its addresses are "),
    ],
)
def test_what_is_required_and_not_there_names_what_is(tmp_path: Path, text: str, says: str) -> None:
    one = need(machine(tmp_path), text)
    assert one.verdict == "broken"
    assert says in one.what
    assert one.remedy
    assert doctor.exit_code([one]) == 3


def test_soft_roce_is_no_rdma_unless_it_is_allowed(tmp_path: Path) -> None:
    one = machine(tmp_path, soft=True)
    refused = need(one, "rdma")
    assert refused.verdict == "broken"
    assert "Soft-RoCE" in refused.what
    assert "functional only" in refused.what
    assert "--allow-soft" in refused.remedy
    assert need(one, "rdma", allow_soft=True).verdict == "ok"
    assert need(one, "rdma@rxe0:1", allow_soft=True).verdict == "ok"


def test_nothing_that_is_required_is_there_without_devices(tmp_path: Path) -> None:
    one = Machine(tmp_path, {})
    for text, says in (("rdma", "RDMA absent: no device"), ("ipoib", "IPoIB absent"), ("shm", "/dev/shm")):
        found = need(one, text)
        assert (found.verdict, says in found.what, bool(found.remedy)) == ("broken", True, True)


@pytest.mark.parametrize("text", ["rdna", "tcp@", "tcp@a b", "tcp@10.77.2.5/24", ""])
def test_what_is_no_channel_cannot_be_required(text: str) -> None:
    with pytest.raises(UsageError, match="--require"):
        doctor.examine(require=[text])


def test_the_command_fails_without_what_is_required(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "PARTS", ())
    here = Machine(tmp_path, {})
    monkeypatch.setattr(channels, "Machine", lambda: here)
    assert cli.main(["doctor"]) == 0
    assert "no device" in capsys.readouterr().out
    assert cli.main(["doctor", "--require", "rdma", "--require", "ipoib@ib0", "--allow-soft"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines if "required" in line] == [
        ["broken", "required", "rdma"],
        ["broken", "required", "ipoib@ib0"],
    ]
    assert cli.main(["doctor", "--require", "rmda"]) == 2
    assert "did you mean 'rdma'" in capsys.readouterr().err
