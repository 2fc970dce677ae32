"""What a queue reads of its partition's log to hand out: file regions, and what they do not hold.

Records are not looked at.  Where the log is known to have a record at every offset, which is
nearly always, not even headers are walked; elsewhere they are, to find what is never delivered:
markers of transactions, what compaction took, and, for who wants only committed messages, what
was aborted.

1. Nothing at or past the high watermark is read, nor, where only committed messages count,
   anything at or past the last stable offset.
2. A look costs no more than the messages that are asked for, however long the log is.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.batch import rows_of
from waystation.records.header import BatchHeader
from waystation.runtime.regions import FileRegion, Part
from waystation.sharing.states import Acquired, Span
from waystation.storage.log import LogSlice
from waystation.storage.txn_index import AbortedTxn
from waystation.storage.walk import BrokenBatchError, Step, walk

# How many headers are looked at before others get their turn of the loop.
_HEADERS_MAX: Final = 1_000


class Stretch(NamedTuple):
    """Whole batches of a log, up to the offset ``end``, and what of them holds no message."""

    region: FileRegion
    end: Offset
    skipped: Sequence[Span] = ()
    batch_ends: Sequence[Offset] = ()


class Wish(NamedTuple):
    """How much is wanted; ``strictly`` so many messages, else up to the end of a batch."""

    records: int
    max_bytes: int
    at_least_one: bool = True
    strictly: bool = False
    committed_only: bool = False


def readable_end(partition: Partition, *, committed_only: bool) -> Offset:
    """The end of what consumers of a queue may be given now."""
    return partition.stable if committed_only else partition.mark


def look(partition: Partition, first: Offset, wish: Wish) -> Stretch | None:
    """What there is to hand out from ``first`` on; ``None`` if there is nothing.

    HOT: once per partition of a ShareFetch.
    """
    log, committed_only = partition.log, wish.committed_only
    found = partition.read(
        first, wish.max_bytes, at_least_one=wish.at_least_one, stable_only=committed_only
    )
    if found.region is None:
        return None
    aborted = log.aborted(first, found.next_offset) if committed_only else ()
    if aborted or first < log.plain_from:
        return _surveyed(found, first, wish.records, aborted)
    last = Offset(first + wish.records - 1)
    if last + 1 < found.next_offset:
        found = log.shorten(found, last)
    assert found.region is not None, f"nothing is left of {partition.name} from {first} on"
    return Stretch(found.region, found.next_offset, (), (found.next_offset,))


def covering(partition: Partition, stretch: Stretch, acquired: Sequence[Acquired]) -> FileRegion:
    """The part of a stretch that holds what was acquired; the client leaves the rest out."""
    last = Offset(acquired[-1].end - 1)
    if stretch.end > acquired[-1].end and acquired[0].first >= partition.log.plain_from:
        shorter = partition.log.shorten(LogSlice(stretch.region, stretch.end), last)
        assert shorter.region is not None, f"nothing is left up to {last}"
        return shorter.region
    return stretch.region


def gathered(partition: Partition, acquired: Sequence[Acquired]) -> Part:
    """The batches that hold what was acquired, although others lie between them."""
    regions: list[FileRegion] = []
    behind = Offset(-1)
    for first, end, _ in acquired:
        at = max(first, behind)
        while at < end:
            found = partition.read(at, 1, at_least_one=True)
            if found.region is None:
                break
            _join(regions, found.region)
            at = behind = max(found.next_offset, Offset(at + 1))
    if len(regions) == 1:
        return regions[0]
    return b"".join(region.read() for region in regions)


def _join(regions: list[FileRegion], region: FileRegion) -> None:
    """Add a region, as a part of the last one if it lies right behind it."""
    last = regions[-1] if regions else None
    if (
        last is not None
        and last.file is region.file
        and last.position + last.nbytes == region.position
    ):
        regions[-1] = FileRegion(last.file, last.position, last.nbytes + region.nbytes)
    else:
        regions.append(region)


def is_aborted(header: BatchHeader, aborted: Sequence[AbortedTxn]) -> bool:
    """Whether a batch belongs to one of these transactions."""
    return header.is_transactional and any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.base_offset < one.last_offset
        for one in aborted
    )


def _surveyed(
    found: LogSlice, first: Offset, records: int, aborted: Sequence[AbortedTxn]
) -> Stretch | None:
    """Look at every header until there are enough messages."""
    region = found.region
    assert region is not None, f"nothing was read from {first} on"
    skipped: list[Span] = []
    ends: list[Offset] = []
    position, end, count = first, region.position, 0
    try:
        for number, step in enumerate(
            walk(region.file, region.position, region.position + region.nbytes)
        ):
            header = step.header
            for span in _without_messages(region, step, position, aborted):
                _note(skipped, span)
                count -= span.end - span.first
            count += header.next_offset - position
            position = header.next_offset
            ends.append(position)
            end = step.position + header.size_bytes
            if count >= records or number >= _HEADERS_MAX:
                break
    except BrokenBatchError:
        if not ends:
            return None  # the client's own checksum would say so; nothing of it can be told apart
    return Stretch(
        FileRegion(region.file, region.position, end - region.position), position, skipped, ends
    )


def _without_messages(
    region: FileRegion, step: Step, position: Offset, aborted: Sequence[AbortedTxn]
) -> list[Span]:
    """What of ``[position, the batch's end)`` holds no message."""
    header = step.header
    behind = header.next_offset
    if header.is_control or not header.records_count or is_aborted(header, aborted):
        return [Span(position, behind)]
    spans = []
    if header.base_offset > position:
        spans.append(Span(position, header.base_offset))
    if header.records_count == header.last_offset_delta + 1:
        return spans
    at = max(position, header.base_offset)
    for row in rows_of(region.file.pread(header.size_bytes, step.position)):
        offset = row[0]
        if offset < at:
            continue
        if offset > at:
            spans.append(Span(at, Offset(offset)))
        at = Offset(offset + 1)
    if at < behind:
        spans.append(Span(at, behind))
    return spans


def _note(skipped: list[Span], span: Span) -> None:
    """Add a span, as a part of the last one if it follows it."""
    if skipped and skipped[-1].end == span.first:
        skipped[-1] = Span(skipped[-1].first, span.end)
    else:
        skipped.append(span)
