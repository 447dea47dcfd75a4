"""Reads the configuration of an external cluster: the site files of a HADOOP_CONF_DIR, as Hadoop reads them.

No request is sent to the cluster. An `Address` includes its configuration key, so that errors can name both.
"""

import getpass
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from dlobd.errors import UsageError
from dlobd.hadoop.site_xml import read_site

SITES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
NAMENODE_HTTP_PORT = 9870
RESOURCEMANAGER_HTTP_PORT = 8088
MAX_SUBSTITUTIONS = 20
"""Depth to which Hadoop's Configuration expands ${...}."""

_VARIABLE = re.compile(r"\$\{([^${}\s]+)\}")
_ENVIRONMENT = re.compile(r"env\.(?P<name>.+?)((?P<sign>:?-)(?P<default>.*))?")
_SYSTEM: Mapping[str, Callable[[], str]] = {
    "user.name": getpass.getuser,
    "user.home": lambda: os.path.expanduser("~"),
    "user.dir": os.getcwd,
    "java.io.tmpdir": lambda: "/tmp",
}
"""System properties of a JVM that site files use."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address HOST:PORT and its configuration key."""

    netloc: str
    key: str

    @property
    def url(self) -> str:
        return f"http://{self.netloc}"


@dataclass(frozen=True, slots=True)
class HadoopConf:
    """The properties of a configuration directory. `directory` is HADOOP_CONF_DIR for clients."""

    directory: Path
    properties: Mapping[str, str]

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the site files. Raises UsageError if one is missing, or is not a Hadoop configuration."""
        directory = directory.expanduser().absolute()
        if not directory.is_dir():
            raise UsageError(f"--hadoop-conf {directory} is not a directory.", "name the cluster's HADOOP_CONF_DIR")
        return cls(directory, read_site(*(directory / site for site in SITES)))

    def get(self, key: str, default: str = "") -> str:
        """Return a property, with ${...} replaced by other properties, and ${env.NAME} by the environment.
        Raises UsageError if properties refer to each other in a cycle."""
        text = self.properties.get(key, default)
        for _ in range(MAX_SUBSTITUTIONS):
            match = _VARIABLE.search(text)
            value = self._variable(match[1]) if match else None
            if match is None or value is None or match[0] in value:
                return text.strip()  # Hadoop leaves unknown names unchanged
            text = text[: match.start()] + value + text[match.end() :]
        raise UsageError(f"{key} in {self.directory} refers to itself: {text[:100]}.", "correct its ${...}")

    def _variable(self, name: str) -> str | None:
        if name.startswith("env.") and (parts := _ENVIRONMENT.fullmatch(name)):
            value = os.environ.get(parts["name"])
            return parts["default"] if value is None or (parts["sign"] == ":-" and not value) else value
        if name in _SYSTEM:
            return _SYSTEM[name]()
        return self.properties.get(name)

    @property
    def fs_uri(self) -> str:
        """Value of fs.defaultFS, such as hdfs://namenode:8020, without a path. Raises UsageError if it is not HDFS."""
        uri = self.get("fs.defaultFS")
        parts = urlsplit(uri)
        if parts.scheme != "hdfs" or not parts.netloc:
            found = f"is {uri!r}" if uri else "is not set"
            raise UsageError(f"fs.defaultFS in {self.directory} {found}: dlobd needs HDFS.", "set it in core-site.xml")
        return f"hdfs://{parts.netloc}"

    def namenodes(self) -> list[Address]:
        """Return the web addresses of the NameNodes of `fs_uri`: a single address, or those of an HA nameservice."""
        name = urlsplit(self.fs_uri).netloc
        host = name.rpartition(":")[0] or name
        key = "dfs.namenode.http-address"
        if ids := _words(self.get(f"dfs.ha.namenodes.{name}")):
            return [self._address(f"{key}.{name}.{one}", "", NAMENODE_HTTP_PORT) for one in ids]
        if f"{key}.{name}" in self.properties:
            return [self._address(f"{key}.{name}", host, NAMENODE_HTTP_PORT)]
        return [self._address(key, host, NAMENODE_HTTP_PORT, instead="fs.defaultFS")]

    def resourcemanagers(self) -> list[Address]:
        """Return the web addresses of the ResourceManagers: a single address, or those of an HA pair."""
        key, host_key = "yarn.resourcemanager.webapp.address", "yarn.resourcemanager.hostname"
        several = self.get("yarn.resourcemanager.ha.enabled").lower() == "true"
        ids = _words(self.get("yarn.resourcemanager.ha.rm-ids")) if several else []
        addresses = []
        for suffix in [f".{one}" for one in ids] or [""]:
            host = self.get(f"{host_key}{suffix}") or self.get(host_key)
            addresses.append(
                self._address(f"{key}{suffix}", host, RESOURCEMANAGER_HTTP_PORT, instead=f"{host_key}{suffix}")
            )
        return addresses

    def check_supported(self) -> None:
        """Raise UsageError if dlobd's HTTP clients cannot use the cluster."""
        remedy = "use a cluster without it; dlobd speaks plain HTTP with simple authentication"
        for key, refused in (
            ("hadoop.security.authentication", "kerberos"),
            ("dfs.http.policy", "HTTPS_ONLY"),
            ("yarn.http.policy", "HTTPS_ONLY"),
        ):
            if self.get(key).upper() == refused.upper():
                raise UsageError(f"The cluster of {self.directory} has the unsupported {key}={refused}.", remedy)
        if self.get("dfs.webhdfs.enabled", "true").lower() == "false":
            raise UsageError(
                f"The cluster of {self.directory} has dfs.webhdfs.enabled=false, but dlobd stages data over WebHDFS.",
                "enable it in hdfs-site.xml",
            )

    def _address(self, key: str, host: str, port: int, instead: str = "") -> Address:
        """Return the address of `key`. If it is unset or names all interfaces, return `host` and the default port.

        Args:
            instead: the key of `host`.
        """
        found, _, found_port = self.get(key).rpartition(":")
        if found and found not in ("0.0.0.0", "[::]"):
            return Address(f"{found}:{found_port}", key)
        if not host or host == "0.0.0.0":
            where = f"{key} or {instead}" if instead else key
            raise UsageError(f"{self.directory} does not name the host of {where}.", f"set {instead or key}")
        return Address(f"{host}:{found_port or port}", instead if not found else key)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
