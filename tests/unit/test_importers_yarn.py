"""YARN's logs: one application's transitions, also over restarts of the ResourceManager."""

from __future__ import annotations

from collections.abc import Iterator

from dlobd.evidence import log4j, yarn

APP = "application_1795230150220_0001"


def line(at_ns: int, logger: str, message: str, level: str = "INFO") -> str:
    return f"{at_ns} 2026-11-21T03:02:40.666 {level} {logger}: {message}\n"


def app(at_ns: int, old: str, new: str, name: str = APP) -> str:
    return line(at_ns, "rmapp.RMAppImpl", f"{name} State change from {old} to {new} on event = X")


def container(at_ns: int, name: str, old: str, new: str) -> str:
    return line(at_ns, "rmcontainer.RMContainerImpl", f"{name} Container Transitioned from {old} to {new}")


def parsed(*lines: str) -> Iterator[log4j.LogLine]:
    return log4j.parse("".join(lines).splitlines(keepends=True), "log")


def test_states_repeated_after_a_restart_of_the_resourcemanager_are_ignored() -> None:
    life = yarn.life(
        parsed(
            app(1_000_000, "NEW_SAVING", "SUBMITTED"),
            app(2_000_000, "SUBMITTED", "ACCEPTED"),
            app(3_000_000, "ACCEPTED", "RUNNING"),
            line(4_000_000, "resourcemanager.ResourceManager", "STARTUP_MSG: Starting ResourceManager"),
            app(5_000_000, "NEW", "ACCEPTED"),
            app(6_000_000, "ACCEPTED", "RUNNING"),
            app(7_000_000, "FINISHING", "FINISHED"),
        ),
        [],
        APP,
    )
    assert life.application.at == {
        "SUBMITTED": 1_000_000,
        "ACCEPTED": 2_000_000,
        "RUNNING": 3_000_000,
        "FINISHED": 7_000_000,
    }


def test_container_ids_carry_the_epoch_of_a_restart() -> None:
    old, new = "container_1795230150220_0001_01_000001", "container_e01_1795230150220_0001_01_000004"
    life = yarn.life(
        parsed(container(1_000_000, old, "NEW", "ALLOCATED"), container(2_000_000, new, "NEW", "ALLOCATED")),
        parsed(
            line(3_000_000, "containermanager.ContainerManagerImpl", f"Start request for {new} by user appattempt_1"),
            line(
                4_000_000,
                "container.ContainerImpl",
                f"Container {new} transitioned from RUNNING to EXITED_WITH_FAILURE",
            ),
        ),
        APP,
    )
    assert {name: dict(marks.at) for name, marks in life.containers.items()} == {
        old: {"ALLOCATED": 1_000_000},
        new: {"ALLOCATED": 2_000_000, "START_REQUEST": 3_000_000, "EXITED": 4_000_000},
    }
    assert "log: " in life.containers[new].source["EXITED"]


def test_other_applications_are_not_ours() -> None:
    ours = "application_1795230150220_1000"
    theirs = ("application_1795230150220_10000", "application_1795230150220_1001", "application_9795230150220_1000")
    life = yarn.life(
        parsed(
            *[app(1_000_000, "SUBMITTED", "ACCEPTED", name) for name in theirs],
            *[container(1_000_000, f"container_{n[12:]}_01_000001", "NEW", "ALLOCATED") for n in theirs],
            app(2_000_000, "SUBMITTED", "ACCEPTED", ours),
        ),
        parsed(
            *[
                line(
                    1_000_000,
                    "container.ContainerImpl",
                    f"Container container_{n[12:]}_01_000001 transitioned from A to B",
                )
                for n in theirs
            ]
        ),
        ours,
    )
    assert life.application.at == {"ACCEPTED": 2_000_000}
    assert life.containers == {}


def test_running_at_the_nodemanager_is_when_the_process_started() -> None:
    name = "container_1795230150220_0001_01_000002"
    life = yarn.life(
        parsed(container(9_000_000, name, "ACQUIRED", "RUNNING")),
        parsed(line(8_000_000, "container.ContainerImpl", f"Container {name} transitioned from SCHEDULED to RUNNING")),
        APP,
    )
    assert life.containers[name].at == {"RM_RUNNING": 9_000_000, "RUNNING": 8_000_000}


def test_warnings_about_the_application_are_its_diagnostics() -> None:
    name = "container_1795230150220_0001_01_000002"
    memory = f"Container [pid=1,containerID={name}] is running 1B beyond the 'PHYSICAL' memory limit."
    logs = f"Container [pid=1,containerID={name}] is logging beyond the container single log directory limit."
    life = yarn.life(
        parsed(
            line(1_000_000, "rmapp.RMAppImpl", f"{APP} failed 1 times", "WARN"), line(1_000_000, "x.Y", "z", "ERROR")
        ),
        parsed(*(line(2_000_000, "monitor.ContainersMonitorImpl", said, "WARN") for said in (memory, logs))),
        APP,
    )
    assert life.diagnostics == [f"{APP} failed 1 times", memory, logs]


def test_a_reservation_is_a_container_only_once_it_is_allocated() -> None:
    """The scheduler reserves on a full node, finds room on another one and drops the reservation without a line."""
    dropped, met = "container_1_7_01_000003", "container_1_7_01_000004"
    log = [
        container(1_000_000, dropped, "NEW", "RESERVED"),
        container(2_000_000, met, "NEW", "RESERVED"),
        container(3_000_000, met, "RESERVED", "ALLOCATED"),
        container(9_000_000, met, "RUNNING", "COMPLETED"),
    ]
    assert set(yarn.life(parsed(*log), [], "application_1_7").containers) == {met}
    log.append(container(9_000_001, dropped, "RESERVED", "KILLED"))
    assert set(yarn.life(parsed(*log), [], "application_1_7").containers) == {met}


def test_attempts_of_an_application_have_states_of_their_own() -> None:
    states = ((1, "ALLOCATED_SAVING", "RUNNING"), (1, "FINAL_SAVING", "FAILED"), (2, "ALLOCATED_SAVING", "RUNNING"))
    log = [
        line(
            (at + 1) * 1_000_000,
            "attempt.RMAppAttemptImpl",
            f"appattempt_1_0007_{number:06} State change from {begin} to {end} on event = X",
        )
        for at, (number, begin, end) in enumerate(states)
    ]
    life = yarn.life(parsed(*log), [], "application_1_0007")
    assert {number: marks.at for number, marks in life.attempts.items()} == {
        1: {"RUNNING": 1_000_000, "FAILED": 2_000_000},
        2: {"RUNNING": 3_000_000},
    }
    assert life.application.at["ATTEMPT_RUNNING"] == 1_000_000
    names = ("container_1_0007_02_000001", "container_e17_1_0007_01_000002", "executor_0")
    assert [yarn.attempt_of(name) for name in names] == [2, 1, 0]
