"""Replies leave in the order of their requests.

Each request takes a slot when it arrives.  A reply waits in its slot until all earlier ones are
there; then it becomes ready, with its length in front, and joins what leaves in one write.
"""

import struct
from collections import deque

from waystation.runtime.regions import FileRegion, Parts, size_of
from waystation.server.requests import PENDING, Request

_LENGTH = struct.Struct(">i")


class Replies:
    """The reply slots of one connection."""

    __slots__ = ("_slots", "in_memory", "ready", "ready_bytes")

    def __init__(self) -> None:
        self._slots: deque[Request] = deque()
        self.ready: Parts = []
        self.ready_bytes = 0
        self.in_memory = True
        """False if a file is among what is ready."""

    def __len__(self) -> int:
        """How many requests have no reply that could leave."""
        return len(self._slots)

    def expect(self, request: Request) -> None:
        """Keep a place for the reply to ``request``."""
        self._slots.append(request)

    def settle(self, request: Request, parts: Parts | None) -> bool:
        """Note the reply to ``request``; true if it was the one the others waited for."""
        request.reply = parts
        slots = self._slots
        if slots[0] is not request:
            return False
        while slots and slots[0].reply is not PENDING:
            self._make_ready(slots.popleft().reply)
        return True

    def take(self) -> tuple[Parts, int, bool]:
        """What is ready, its size, and whether all of it lies in memory; forgotten here."""
        taken = self.ready, self.ready_bytes, self.in_memory
        self.ready, self.ready_bytes, self.in_memory = [], 0, True
        return taken

    def drop(self) -> None:
        """Forget everything: nobody is there to be answered."""
        self._slots.clear()
        self.take()

    def _make_ready(self, parts: Parts | None) -> None:
        """HOT: once per request."""
        if parts is None:
            return
        nbytes = 0
        framed: Parts = [b""]
        for part in parts:
            if type(part) is bytes:
                size = len(part)
            else:
                size = size_of(part)
                self.in_memory = self.in_memory and not isinstance(part, FileRegion)
            if size:
                nbytes += size
                framed.append(part)
        length = _LENGTH.pack(nbytes)
        if len(framed) > 1 and type(framed[1]) is bytes:
            # The beginning is short nearly always, and each part costs more than it is long.
            framed[1] = length + framed[1]
            del framed[0]
        else:
            framed[0] = length
        self.ready += framed
        self.ready_bytes += nbytes + _LENGTH.size
