"""Short answers come in one piece, and whatever is written comes in its order."""

import asyncio

from waystation.gateway.corking import Cork


class Wire(asyncio.Transport):
    """Keeps what is written to it, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_a_head_goes_with_its_body() -> None:
    wire = Wire()
    cork = Cork(wire)
    for number in (b"1", b"2"):
        cork.hold()
        cork.write(b"head " + number)
        assert number not in b"".join(wire.written)
        cork.write(b" body " + number)
        cork.release()
    assert wire.written == [b"head 1 body 1", b"head 2 body 2"]


def test_a_long_body_is_not_copied() -> None:
    wire = Wire()
    cork = Cork(wire)
    cork.hold()
    cork.write(b"head")
    cork.write(b"x" * (1 << 20))
    assert [len(one) for one in wire.written] == [4, 1 << 20]


def test_a_head_without_a_body_waits_for_nothing() -> None:
    wire = Wire()
    cork = Cork(wire)
    cork.hold()
    cork.write(b"head")
    cork.release()
    cork.write(b"next")
    assert wire.written == [b"head", b"next"]

    cork.hold()
    cork.write(b"last")
    cork.close()
    assert wire.written[-1] == b"last"
    assert wire.closed


def test_streams_are_written_as_they_come() -> None:
    wire = Wire()
    cork = Cork(wire)
    cork.write(b"head")
    cork.write(b"chunk")
    assert wire.written == [b"head", b"chunk"]
