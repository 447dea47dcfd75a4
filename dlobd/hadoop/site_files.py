"""Reads the configuration of an external cluster, the site files of a HADOOP_CONF_DIR, as Hadoop reads them.

No request is sent to the cluster. An `Address` includes its configuration key, so that errors can name both.
"""

import getpass
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from dlobd.errors import UsageError

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
        """Return the address of `key`. If it is unset or names all interfaces, return `host`, the value of the key
        `instead`, and the default port."""
        found, _, found_port = self.get(key).rpartition(":")
        if found and found not in ("0.0.0.0", "[::]"):
            return Address(f"{found}:{found_port}", key)
        if not host or host == "0.0.0.0":
            where = f"{key} or {instead}" if instead else key
            raise UsageError(f"{self.directory} does not name the host of {where}.", f"set {instead or key}")
        return Address(f"{host}:{found_port or port}", instead if not found else key)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


# ---- site files as XML

CURRENT_NAMES = {"fs.default.name": "fs.defaultFS", "dfs.http.address": "dfs.namenode.http-address"}
"""Deprecated name of a property that dlobd reads -> current name."""

REMEDY = "--hadoop-conf needs core-site.xml, hdfs-site.xml and yarn-site.xml of the cluster"


def read_site(*sites: Path) -> dict[str, str]:
    """Read the properties of site files, in this order. A later value replaces an earlier value that is not final.
    Raises UsageError if a file or an included file is missing or no configuration."""
    properties: dict[str, str] = {}
    final: set[str] = set()
    for site in sites:
        _Parser(site, properties, final).parse(site, ())
    return properties


class _Parser:
    """Parser of a site file and its includes.

    The rules are those of Hadoop 3.5: an href is relative to the site file, also inside an included file; a property
    without a value is ignored; a fallback without properties is enough for a missing file.
    """

    def __init__(self, site: Path, properties: dict[str, str], final: set[str]) -> None:
        self._site = site
        self._properties = properties
        self._final = final

    def parse(self, path: Path, including: tuple[Path, ...]) -> None:
        if path in including:
            raise UsageError(f"{path} includes itself.", "remove the xi:include")
        try:
            self._parse(path, including)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.", REMEDY) from None
        except ElementTree.ParseError as error:
            raise UsageError(f"{path} is not XML: {error}.", REMEDY) from None

    def _parse(self, path: Path, including: tuple[Path, ...]) -> None:
        name = value = None
        final = missing = in_fallback = False
        depth = 0
        for event, element in ElementTree.iterparse(path, ("start", "end")):
            tag, text = element.tag.rpartition("}")[2], element.text or ""
            depth += 1 if event == "start" else -1
            match event, tag:
                case "start", _ if depth == 1 and not including and tag != "configuration":
                    raise UsageError(f"{path} is not a Hadoop configuration: its root is <{tag}>.", REMEDY)
                case "start", "property":
                    name, value, final = element.get("name"), element.get("value"), element.get("final") == "true"
                case "start", "fallback":
                    in_fallback = True
                case "start", "include" if href := element.get("href"):
                    included = self._located(path, href)
                    if included.exists():
                        self.parse(included, (*including, path))
                    else:
                        missing = True
                case "end", "include":
                    if missing and not in_fallback:
                        why = f"{path} includes {element.get('href')}, which does not exist, and has no fallback."
                        raise UsageError(why, "correct the href, or add an xi:fallback")
                    missing = in_fallback = False
                case "end", "name" if text:
                    name = text.strip()
                case "end", "value" if text:
                    value = text
                case "end", "final":
                    final = text == "true"
                case "end", "property" if name and (missing or not in_fallback):
                    self._set(name, value, final)

    def _set(self, name: str, value: str | None, final: bool) -> None:
        name = CURRENT_NAMES.get(name, name)
        if value is not None and name not in self._final:
            self._properties[name] = value
        if final:
            self._final.add(name)

    def _located(self, path: Path, href: str) -> Path:
        """Return the path of an href. Raises UsageError for a URL of another scheme than file."""
        parts = urlsplit(href)
        if parts.scheme not in ("", "file"):
            raise UsageError(f"{path} includes {href}: dlobd includes only files.", "name a file in the href")
        return self._site.parent / (unquote(parts.path) if parts.scheme else href)
