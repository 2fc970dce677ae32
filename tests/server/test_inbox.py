"""What was received and not handled is there, in order, whatever way it is kept."""

import random

import pytest

from tests.support.soak import count
from waystation.server.inbox import SMALL_FRAME_BYTES, Inbox, shared_buffer
from waystation.server.memory import RequestMemory

MEMORY_BYTES = 3 << 20
SIZES = (4, 5, 1_000, 40_000, SMALL_FRAME_BYTES, SMALL_FRAME_BYTES + 1, 700_000, 2_500_000)


class Reader:
    """A connection without a socket: frames of four bytes of length, the length included."""

    def __init__(self, rng: random.Random, shared: memoryview, memory: RequestMemory) -> None:
        self.rng = rng
        self.inbox = Inbox(shared, memory)
        self.frames = [self._frame() for _ in range(12)]
        self.stream = b"".join(self.frames)
        self.sent = 0
        self.handled: list[bytes] = []
        self.waits = False

    @property
    def done(self) -> bool:
        return len(self.handled) == len(self.frames)

    def step(self) -> None:
        """Handle what is kept, then read once."""
        if self.waits or self.done:
            return
        if self.inbox.at < self.inbox.end and not self.inbox.is_growing():
            self._handle()
            if self.waits or (self.inbox.at < self.inbox.end and self._kept_whole()):
                return
        if self.sent < len(self.stream):
            self._read()

    def _read(self) -> None:
        room = self.inbox.room()
        assert len(room) > 0
        nbytes = min(self.rng.choice((1, 50, 9_000, 1 << 20)), len(room), self._unsent())
        room[:nbytes] = self.stream[self.sent : self.sent + nbytes]
        self.sent += nbytes
        self.inbox.received(nbytes)
        if not self.inbox.is_growing():
            self._handle()

    def _handle(self) -> None:
        """Handle some of the whole frames there are, not always all of them."""
        inbox, need = self.inbox, 0
        while True:
            left = inbox.end - inbox.at
            need = int.from_bytes(inbox.view[inbox.at : inbox.at + 4]) if left >= 4 else 4
            if left < need or left < 4:
                break
            if self.rng.random() < 0.1:
                need = 0
                break
            self.handled.append(bytes(inbox.view[inbox.at : inbox.at + need]))
            inbox.at += need
        self.waits = not inbox.settle(need, self._wake)

    def _kept_whole(self) -> bool:
        left = self.inbox.end - self.inbox.at
        at = self.inbox.at
        return left >= 4 and left >= int.from_bytes(self.inbox.view[at : at + 4])

    def _wake(self) -> None:
        self.waits = False

    def _unsent(self) -> int:
        return len(self.stream) - self.sent

    def _frame(self) -> bytes:
        size = self.rng.choice(SIZES)
        return size.to_bytes(4) + self.rng.randbytes(size - 4)


@pytest.mark.parametrize("seed", range(count(30, 500)))
def test_frames_of_many_connections_come_out_as_they_went_in(seed: int) -> None:
    rng = random.Random(seed)
    shared, memory = shared_buffer(), RequestMemory(MEMORY_BYTES)
    readers = [Reader(rng, shared, memory) for _ in range(4)]
    for _ in range(200_000):
        pending = [reader for reader in readers if not reader.done]
        if not pending:
            break
        rng.choice(pending).step()
        assert memory.claimed_bytes <= MEMORY_BYTES

    for reader in readers:
        assert reader.handled == reader.frames
        assert reader.inbox.at == reader.inbox.end == 0
    assert memory.claimed_bytes == 0
    assert not memory.contended
