"""Reads the logs of HDFS: the NameNode's audit log and the DataNodes' client trace."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dlobd.evidence import rpc
from dlobd.evidence.facts import Checksums
from dlobd.evidence.log4j import LogLine
from dlobd.spans import CLOSE_RETRY, JsonMap

# fields are separated by tabs, because a path may contain spaces
_AUDIT = re.compile(r"allowed=\w+\t.*?cmd=([^\t]+)\tsrc=([^\t]+)\tdst=[^\t]+\t.*?proto=\w+")
_TRACE = re.compile(
    r"bytes: (\d{1,19}), op: (HDFS_\w+), cliID: (\S+), offset: (\d+), "
    r".*blockid: \S*?:?(blk_\d+)_\d+, duration\(ns\): (\d{1,19})"
)


@dataclass(frozen=True, slots=True)
class Audit:
    """One operation of the NameNode, at the time of its log line."""

    at_ns: int
    command: str
    path: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """One block transfer of a DataNode. A read includes the reader's back-pressure; a write, an open stream."""

    end_ns: int
    operation: str  # HDFS_READ or HDFS_WRITE
    bytes: int  # a read includes checksums, about 0.8 %
    duration_ns: int
    block: str
    client: str

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.duration_ns


def audits(lines: Iterable[LogLine]) -> Iterator[Audit]:
    """Yield the operations in the NameNode's audit log."""
    for line in lines:
        if match := _AUDIT.search(line.message):
            yield Audit(line.at_ns, match[1], match[2])


def transfers(lines: Iterable[LogLine]) -> Iterator[Transfer]:
    """Yield the block transfers in a DataNode's client trace."""
    for line in lines:
        if match := _TRACE.search(line.message):
            yield Transfer(line.at_ns, match[2], int(match[1]), int(match[6]), match[5], match[3])


_NOT_COMPLETE = re.compile(r"BLOCK\* \S+ is COMMITTED but not COMPLETE.* in file (\S+)")
_CLOSED = re.compile(r"DIR\* completeFile: (\S+) is closed by ")


@dataclass(frozen=True, slots=True)
class CloseRetry:
    """A close that the NameNode refused, because a DataNode had not reported the last block."""

    at_ns: int
    path: str
    delay_ns: int  # the client's sleep, which doubles at each retry by default
    next_ns: int | None = None  # time of the next attempt; None if the log has none


def close_retries(lines: Iterable[LogLine]) -> Iterator[CloseRetry]:
    """Yield the refused closes in the NameNode's log."""
    seen: Counter[str] = Counter()
    refused: dict[str, int] = {}
    for line in lines:
        again = _NOT_COMPLETE.search(line.message)
        if (match := again or _CLOSED.search(line.message)) is None:
            continue
        path = match[1]
        if (at_ns := refused.pop(path, None)) is not None:
            yield _retry(path, at_ns, seen[path], line.at_ns)
            seen[path] += 1
        if again:
            refused[path] = line.at_ns
    for path, at_ns in refused.items():
        yield _retry(path, at_ns, seen[path], None)


def _retry(path: str, at_ns: int, number: int, next_ns: int | None) -> CloseRetry:
    default_ns = CLOSE_RETRY.period_ns << number
    return CloseRetry(at_ns, path, default_ns if next_ns is None else min(default_ns, next_ns - at_ns), next_ns)


@dataclass(frozen=True)
class HdfsLife:
    """The logs and block locations of HDFS, read when first used."""

    _log: Callable[[str], list[LogLine]]
    _datanode_logs: Sequence[str]
    _located: Mapping[str, JsonMap]  # path of each input file -> response to GET_BLOCK_LOCATIONS
    checksums: Checksums

    @cached_property
    def audits(self) -> list[Audit]:
        """The operations of the NameNode."""
        return list(audits(self._log("namenode-audit.log")))

    @cached_property
    def transfers(self) -> list[Transfer]:
        """The transfers of the DataNodes, sorted by their end."""
        found = [transfer for name in self._datanode_logs for transfer in transfers(self._log(name))]
        return sorted(found, key=lambda t: t.end_ns)

    @cached_property
    def reads(self) -> list[Transfer]:
        """The reads among the transfers."""
        return [transfer for transfer in self.transfers if transfer.operation == "HDFS_READ"]

    @cached_property
    def datanode_calls(self) -> list[rpc.Call]:
        """Calls of the NameNode by DataNodes, which make them for WebHDFS clients."""
        return [call for name in self._datanode_logs for call in rpc.calls(self._log(name))]

    @cached_property
    def close_retries(self) -> list[CloseRetry]:
        """Closes of files that the NameNode refused at first."""
        return list(close_retries(self._log("namenode.log")))

    @cached_property
    def blocks(self) -> dict[str, set[str]]:
        """Path of each input file -> the names of its blocks."""
        return {
            path: {f"blk_{block['block']['blockId']}" for block in answer["LocatedBlocks"]["locatedBlocks"]}
            for path, answer in self._located.items()
        }

    @cached_property
    def file_bytes(self) -> dict[str, int]:
        """Path of each input file -> its length."""
        return {path: answer["LocatedBlocks"]["fileLength"] for path, answer in self._located.items()}

    @cached_property
    def datanode_addresses(self) -> tuple[str, ...]:
        """Addresses of the DataNodes that have blocks of the input files."""
        found = [block for answer in self._located.values() for block in answer["LocatedBlocks"]["locatedBlocks"]]
        return tuple(sorted({place["ipAddr"] for block in found for place in block["locations"]}))
