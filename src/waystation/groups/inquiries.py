"""Whether a transaction ended while somebody asked about it.

Before offsets join a transaction, its coordinator is asked whether there is one.  By the time it
answers yes, the marker that ends the transaction may already be here, and offsets that came
behind it would wait for an end that has passed.  Who asks therefore begins an inquiry first, and
shows it with the offsets.

Nothing of this survives a restart, and nothing needs to: whoever asked is told that this
coordinator is gone.
"""

from weakref import WeakValueDictionary

from waystation.model.ids import ProducerId


class Inquiry:
    """Kept by whoever asks, for as long as they do."""

    __slots__ = ("__weakref__", "overtaken")

    def __init__(self) -> None:
        self.overtaken = False
        """Whether a transaction of that producer ended here since."""


class Inquiries:
    """Those that are under way; one that nobody holds any more is forgotten by itself."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: WeakValueDictionary[ProducerId, Inquiry] = WeakValueDictionary()

    def begin(self, producer_id: ProducerId) -> Inquiry:
        """An inquiry; all who ask about one producer at a time share it."""
        inquiry = self._open.get(producer_id)
        if inquiry is None:
            inquiry = self._open[producer_id] = Inquiry()
        return inquiry

    def ended(self, producer_id: ProducerId) -> None:
        """A transaction of the producer has ended."""
        inquiry = self._open.pop(producer_id, None)
        if inquiry is not None:
            inquiry.overtaken = True
