"""Messages of a payload: memory with known content, sending, receiving and verification.

All messages of a point have the same length, which both ends know. The content is a pattern; the first bytes are the
number of the message, so that a message that arrives twice or not at all is found.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from dlobd.micro.payload import Payload
from dlobd.network.channels.base import Array, Connection

NUMBER_BYTES = 8


class Message:
    """Memory of one message. `wire`: the serialized message, if the payload is serialized."""

    def __init__(self, payload: Payload) -> None:
        self.memory = np.zeros(payload.bytes, np.uint8)
        ends = np.cumsum(payload.sizes).tolist()
        self.parts = [self.memory[end - size : end] for end, size in zip(ends, payload.sizes, strict=True)]
        self.wire = np.zeros(serialized_bytes(payload) if payload.serialized else 0, np.uint8)
        self.decoded: Any = None

    def clear(self) -> None:
        """Overwrite the content, so that no part of an old message is taken for a new one."""
        self.memory ^= 255
        self.decoded = None


class Content:
    """Expected content of the messages of a payload."""

    def __init__(self, payload: Payload) -> None:
        self._expected = np.random.default_rng(payload.bytes).integers(0, 256, payload.bytes, np.uint8)
        self._serialized = payload.serialized

    def write(self, message: Message, number: int) -> None:
        """Fill a message with the pattern and its number."""
        message.memory[:] = self._numbered(number)

    def number(self, message: Message, number: int) -> None:
        """Change the number of a filled message."""
        head = self._number(number)
        message.memory[: len(head)] = head

    def wrong(self, message: Message, number: int) -> bool:
        """Return True if a received message is not the message of this number, and clear it."""
        if self._serialized:
            if message.decoded is None:
                return True
            got = np.frombuffer(b"".join(message.decoded.buffers), np.uint8)
        else:
            got = message.memory
        differs = not np.array_equal(got, self._numbered(number))
        message.clear()
        return differs

    def _numbered(self, number: int) -> Array:
        head = self._number(number)
        self._expected[: len(head)] = head
        return self._expected

    def _number(self, number: int) -> Array:
        return np.frombuffer(number.to_bytes(NUMBER_BYTES, "little"), np.uint8)[: len(self._expected)]


class Carrier:
    """Sender and receiver of the messages of a payload over one connection."""

    def __init__(self, connection: Connection, payload: Payload, deadline_s: float) -> None:
        self.connection = connection
        self._deadline_s = deadline_s
        self._serialized = payload.serialized
        self._single = len(payload.sizes) == 1

    def send(self, message: Message) -> None:
        if self._serialized:
            self.connection.send(_encoded(message.parts), self._deadline_s)
        elif self._single:
            self.connection.send(message.memory, self._deadline_s)
        else:
            self.connection.send_parts(message.parts, self._deadline_s)

    def begin(self, message: Message) -> Any:
        """Start a send; return a handle, or None if the bytes are taken. Buffers are not gathered: a message of several
        buffers is sent at once."""
        if self._single and not self._serialized:
            return self.connection.begin_send(message.memory)
        self.send(message)
        return None

    def finish(self, begun: Any) -> None:
        self.connection.finish_send(begun, self._deadline_s)

    def begin_recv(self, message: Message) -> Any:
        """Announce the memory of a message of one buffer; return a handle, or None."""
        return self.connection.begin_recv(message.memory) if self._single and not self._serialized else None

    def finish_recv(self, message: Message, begun: Any) -> None:
        if begun is None:
            self.recv(message)
        else:
            self.connection.finish_recv(begun, self._deadline_s)

    def recv(self, message: Message) -> None:
        if self._serialized:
            self.connection.recv(message.wire, self._deadline_s)
            message.decoded = _message_class().FromString(message.wire.tobytes())
        elif self._single:
            self.connection.recv(message.memory, self._deadline_s)
        else:
            self.connection.recv_parts(message.parts, self._deadline_s)

    def echo(self, message: Message) -> None:
        """Send back a received message; a serialized message is serialized again."""
        if self._serialized:
            self.connection.send(message.decoded.SerializeToString(), self._deadline_s)
        else:
            self.send(message)


# ---- serialization


def serialized_bytes(payload: Payload) -> int:
    """Return the length of the serialized message, which depends on the sizes only."""
    return len(_encoded([np.zeros(size, np.uint8) for size in payload.sizes]))


def _encoded(parts: Sequence[Array]) -> bytes:
    encoded: bytes = _message_class()(buffers=[part.tobytes() for part in parts]).SerializeToString()
    return encoded


@cache
def _message_class() -> Any:
    """Return the class of `message Payload { repeated bytes buffers = 1; }`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="dlobd/micro.proto", package="dlobd.micro", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="Payload").field.add(
        name="buffers", number=1, type=field.TYPE_BYTES, label=field.LABEL_REPEATED
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("dlobd.micro.Payload"))
