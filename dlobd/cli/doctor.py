"""`dlobd doctor`: checks this machine before a run."""

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
            help="Fail without this channel: rdma, ipoib@IFACE, tcp@IFACE, tcp@NETWORK or shm; repeatable.",
        ),
    ] = None,
    allow_soft: Annotated[bool, typer.Option("--allow-soft", help="With --require rdma: accept Soft-RoCE.")] = False,
) -> int:
    """Check this machine and list the ports that a run opens.

    --noise also measures timer latency and the run-to-run variation of a fixed loop. --hadoop-conf also checks the
    external cluster.

    Exit code 3: a run would fail on this machine, or a required channel is missing. 4: the machine is ready, but the
    cluster does not respond."""
    from dlobd.fields import plain
    from dlobd.report.sentences import machine_line
    from dlobd.run.machine_noise import measure
    from dlobd.run.preflight import machine

    findings = machine.examine(hadoop_conf, require or (), allow_soft)
    measured = measure() if noise else None
    if as_json:
        document = {
            "findings": findings,
            "listeners": machine.listeners(hadoop_conf),
            "noise": measured and plain(measured) | {"sentence": machine_line(measured)},
        }
        print_json(document)
    else:
        width = max(15, *(len(finding.part) for finding in findings))
        for finding in findings:
            print(
                f"{finding.verdict:7} {finding.part:{width}} {finding.what}"
                + f"  Next: {finding.remedy}" * bool(finding.remedy)
            )
        print("Ports open during a run:")
        for listener in machine.listeners(hadoop_conf):
            print(f"  {listener.program}: {listener.address}; protected by {listener.protected}")
        if measured:
            print(machine_line(measured))
    return machine.exit_code(findings)
