"""Nodes of an external cluster that have dlobd installed: its configuration says so to clients and to NodeManagers."""

from __future__ import annotations

from itertools import islice

from dlobd import installation
from dlobd.errors import UsageError
from dlobd.hadoop.site_files import HadoopConf
from dlobd.hadoop.web import MAX_NODES, HadoopWeb
from dlobd.installation import Installed

VERSION, PYTHON = "yarn.nodemanager.dlobd.version", "yarn.nodemanager.dlobd.python"
"""Properties of yarn-site.xml; `yarn/base/installed.properties` sets them."""


def have_dlobd(conf: HadoopConf) -> bool:
    """Whether a cluster's configuration says that its nodes have dlobd, so that nothing is to be uploaded."""
    return bool(conf.get(VERSION))


def check(web: HadoopWeb) -> None:
    """Asks each NodeManager, of MAX_NODES at most, which dlobd its node has: it must be this one, at this place.

    Raises:
        UsageError: it is another one, or it does not say.
    """
    here = installation.this()
    for host, url in islice(web.nodes(), MAX_NODES):
        version, python = (web.property(url, key) for key in (VERSION, PYTHON))
        there = Installed(version or "", python or "")
        if there != here:
            found = f"has {there}" if there.version else f"does not say at {url}/conf which dlobd it has"
            raise UsageError(
                f"Node {host} {found}, but this is {here}: the job would run with another dlobd than the one that "
                "submits it.",
                "run the same image on both sides (docker compose build, then up), or bring --archive FILE",
            )
