"""Checks damaged payloads that end where readable memory ends: one byte further kills this.

Run as a program by ``test_codec.py``; prints how many payloads it survived.
"""

import ctypes
import mmap
import sys
from array import array
from contextlib import suppress

from crc32c import crc32c

from tests.records.messages import SAMPLE, build
from tests.records.mutations import mutants
from waystation.model.errors import CorruptBatchError
from waystation.records import codec, keys
from waystation.records.header import HEADER_BYTES

PROT_NONE = 0


def guarded_page() -> memoryview:
    """One page of memory; the page behind it may not be touched."""
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    guard = ctypes.c_void_p(start + mmap.PAGESIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(guard, mmap.PAGESIZE, PROT_NONE) == 0, ctypes.get_errno()
    return memoryview(area)[: mmap.PAGESIZE]


def reseal(batch: memoryview) -> None:
    """Give damaged bytes a checksum that matches, if they still have a place for one."""
    length = int.from_bytes(batch[8:12], "big")
    if len(batch) >= HEADER_BYTES and 0 < length <= len(batch) - 12:
        batch[17:21] = crc32c(bytes(batch[21 : 12 + length])).to_bytes(4, "big")


def main(count: int) -> None:
    page = guarded_page()
    seeds = [build([message])[HEADER_BYTES:] for message in SAMPLE[:5]] + [build(SAMPLE[:5])[61:]]
    places = array("q", [0]) * (5 * codec.PLACE_FIELDS)
    rows = array("q", [0]) * (2 * codec.BATCH_FIELDS)
    survived = 0
    for payload in mutants(seeds, count, seed=5):
        view = page[mmap.PAGESIZE - len(payload) :]
        view[:] = payload
        for records in (1, 5):
            with suppress(CorruptBatchError):
                codec.check_records(view, records, records - 1, 0)
            with suppress(CorruptBatchError):
                codec.record_sizes(view, records)
            with suppress(CorruptBatchError):
                codec.locate_records(view, records, 0, records - 1, 0, places)
                keys.KeyMap(8, bytes(16)).note(view, places, records, 0)
        survived += 1
    for batch in mutants([build(SAMPLE[:5]), build(SAMPLE[:1]) * 2], count // 10, seed=6):
        view = page[mmap.PAGESIZE - len(batch) :]
        view[:] = batch
        reseal(view)
        found = codec.locate_batches(view, 0, places, rows)
        keys.KeyMap(8, bytes(16)).judge(view, places, rows, found, 9, len(batch), {})
    print(survived)  # noqa: T201  # the parent reads it


if __name__ == "__main__":
    main(int(sys.argv[1]))
