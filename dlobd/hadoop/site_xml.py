"""Parses site files like Hadoop's Configuration: includes with fallbacks, final properties, deprecated names.

The rules are those of Hadoop 3.5: an href is relative to the site file, also inside an included file; a property
without a value is ignored; a fallback without properties is enough for a missing file.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from dlobd.errors import UsageError

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
