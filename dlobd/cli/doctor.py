"""dlobd doctor"""

from __future__ import annotations

from typing import Annotated

import typer

from dlobd.cli.options import HadoopConf, Json
from dlobd.cli.printing import print_json


def doctor(
    as_json: Json = False,
    noise: Annotated[bool, typer.Option("--noise", help="Also measure this machine's noise (about 5 s).")] = False,
    hadoop_conf: HadoopConf = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="CHANNEL",
            help="Fail without rdma, ipoib@IFACE, tcp@IFACE, tcp@NETWORK, shm; repeatable.",
        ),
    ] = None,
    allow_soft: Annotated[
        bool, typer.Option("--allow-soft", help="With --require: an RDMA device in software (Soft-RoCE) will do.")
    ] = False,
) -> int:
    """Check this machine, and list the ports open during a run.

    --noise also measures how late waits end and how much equal loops vary; --hadoop-conf also checks that cluster.

    Exit code 3 if a run would fail because of this machine, or if a required channel is not there; 4 if only the
    cluster does not answer."""
    import dataclasses

    from dlobd.bundle.noise import sentence
    from dlobd.run import doctor as doctors
    from dlobd.run.machine_noise import measure

    findings = doctors.examine(hadoop_conf, require or (), allow_soft)
    found = measure() if noise else None
    if as_json:
        print_json({
            "findings": [dataclasses.asdict(finding) for finding in findings],
            "listeners": [dataclasses.asdict(listener) for listener in doctors.listeners(hadoop_conf)],
            "noise": found and dataclasses.asdict(found) | {"sentence": sentence(found)},
        })  # fmt: skip
    else:
        width = max(15, *(len(finding.part) for finding in findings))
        for finding in findings:
            print(
                f"{finding.verdict:7} {finding.part:{width}} {finding.what}"
                + f"  Next: {finding.remedy}." * bool(finding.remedy)
            )
        print("Ports open during a run:")
        for listener in doctors.listeners(hadoop_conf):
            print(f"  {listener.program}: {listener.address}; protected by {listener.protected}")
        if found:
            print(sentence(found))
    return doctors.exit_code(findings)
