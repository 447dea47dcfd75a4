"""`dlobd cluster up | status | down`: controls the embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dlobd.cli.options import Json
from dlobd.cli.printing import print_json
from dlobd.errors import ClusterError

if TYPE_CHECKING:
    from dlobd.hadoop.embedded.cluster import Endpoints

app = typer.Typer(help="Start, show and stop an embedded cluster for many runs.", no_args_is_help=True)


@app.command()
def up(
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts", help="Hosts of a DataNode and a NodeManager: loopback addresses, such as 127.0.0.2,127.0.0.3."
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Hadoop setting of daemons and clients; repeatable."),
    ] = None,
) -> None:
    """Start HDFS and YARN and keep them running for later `dlobd run` commands."""
    from dlobd.hadoop.embedded.cluster import EmbeddedCluster
    from dlobd.hadoop.embedded.configuration import default_settings
    from dlobd.run.progress import Progress

    cluster = EmbeddedCluster(default_settings(hosts, conf or ()))
    with Progress() as progress:
        cluster.start(progress, stays=True)
    _print_endpoints(cluster.endpoints)
    cluster.release()


@app.command()
def status(as_json: Json = False) -> int:
    """Show the running cluster: daemons, memory, web addresses."""
    from dlobd.hadoop.embedded.cluster import EmbeddedCluster
    from dlobd.paths import cluster_dir

    cluster = EmbeddedCluster.attach(cluster_dir(), hold=False)
    now = cluster.status()
    if as_json:
        print_json(now)
    else:
        print(f"{now.state}, up {now.up_s:.0f} s, {now.applications} applications" + ", safe mode" * now.safe_mode)
        for daemon in now.daemons:
            state = "ready" if daemon.ready else "not ready" if daemon.alive else "dead"
            figures = f"pid {daemon.pid or '-':>7} {daemon.rss_bytes / 1e6:6.0f} MB"
            print(f"  {daemon.name:16} {state:9} {figures}  {daemon.web_url}")
        _print_endpoints(cluster.endpoints)
    return 0 if now.state == "running" else 4


@app.command()
def down() -> None:
    """Stop the running cluster. HDFS content is kept."""
    from dlobd.hadoop.embedded.cluster import EmbeddedCluster
    from dlobd.hadoop.embedded.configuration import ClusterSettings
    from dlobd.paths import cluster_dir
    from dlobd.run.progress import Progress

    try:
        cluster = EmbeddedCluster.attach(cluster_dir())
    except ClusterError:
        # daemons have died: end the remaining processes
        cluster = EmbeddedCluster(ClusterSettings(cluster_dir()))
    with Progress() as progress:
        cluster.stop(progress)
    print("cluster is down")


def _print_endpoints(endpoints: Endpoints) -> None:
    print(f"HDFS     {endpoints.fs_uri}")
    for name, url in endpoints.web.items():
        print(f"{name}  {url}")
