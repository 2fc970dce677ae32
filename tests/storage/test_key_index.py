"""A key index by itself: what it holds in memory, keys with very many messages, large batches."""

import random
import time

import pytest

from tests.storage.building import append, end, flush, new_log, open_log
from tests.storage.compacting import SECRET, keyed
from tests.storage_faults.indexed import scanned, searched
from waystation.model.errors import CorruptBatchError
from waystation.model.ids import ProducerEpoch, ProducerId
from waystation.model.offsets import Millis, Offset
from waystation.model.topics import TopicSettings
from waystation.records.batch import BatchBuilder
from waystation.records.compression import Codec
from waystation.records.endings import Aborted
from waystation.records.key_entries import hash_of
from waystation.storage.key_index import (
    KeyIndex,
    OvertakenError,
    Tools,
    Wanted,
    taken_back,
    view_of,
)
from waystation.storage.log import Log
from waystation.storage.open_files import OpenFiles
from waystation.testing.disk import SimulatedDisk

WHOLE = TopicSettings(segment_bytes=1 << 20, index_keys=True)
EVERYTHING = 1 << 30


def index_of(disk: SimulatedDisk, block_entries: int = 1 << 18) -> KeyIndex:
    return KeyIndex(Tools(SECRET, OpenFiles(disk, 4), block_entries=block_entries))


def catch_up(index: KeyIndex, log: Log) -> None:
    while behind := index.behind(log):
        index.catch_up(view_of(log, behind, Offset(0)), EVERYTHING)


def found(index: KeyIndex, log: Log, key: bytes, offset: int = 0) -> list[int]:
    rows = searched(index, log, key, Offset(offset), log.log_end, random.Random(1))
    assert rows == scanned(log, key, Offset(offset), log.log_end)
    return [row[0] for row in rows]


def test_a_key_with_most_of_the_messages_is_gone_through_from_any_place() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk, block_entries=5_000)
    for number in range(6_000):
        append(log, keyed((b"hot" if number % 10 else b"cold-%d" % number, b"")))
    catch_up(index, log)

    assert len(found(index, log, b"hot")) == 5_400
    assert found(index, log, b"hot", 5_980)[0] == 5_981
    assert found(index, log, b"cold-40") == [40]
    assert found(index, log, b"cold-5990") == [5_990]


def test_a_batch_larger_than_what_is_read_at_once_is_indexed() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk)
    append(log, keyed((b"small", b"")))
    append(log, keyed(*((b"user-%d" % number, b"x" * 500) for number in range(900))))
    append(log, keyed((b"small", b"")))

    assert found(index, log, b"user-77") == [78]
    assert found(index, log, b"small") == [0, 901]


def test_of_closed_segments_nothing_stays_in_memory() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk)[1], index_of(disk)
    for number in range(40):
        append(log, keyed((b"%d" % number, b"x" * 50)))
    catch_up(index, log)
    assert index.memory_bytes > 0
    log.roll()
    catch_up(index, log)

    assert index.memory_bytes == 0
    assert len(log.segments) > 5
    assert found(index, log, b"7") == [7]


def test_another_life_believes_what_is_there_and_reads_no_more_of_the_log() -> None:
    disk = SimulatedDisk()
    directory, log = new_log(disk)
    for number in range(40):
        append(log, keyed((b"%d" % number, b"x" * 50)))
    log.roll()
    flush(log)
    catch_up(index_of(disk), log)
    directory.close({})
    directory.unlock()
    log = open_log(disk)[1]
    index = KeyIndex(Tools(bytes(16), OpenFiles(disk, 4)))

    assert index.catch_up(view_of(log, index.behind(log), Offset(0)), EVERYTHING) == 0
    assert found(index, log, b"7") == [7]


def test_keys_of_one_hash_are_told_apart() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk)
    first, second = _alike()
    for number in range(10):
        append(log, keyed((first if number % 2 else second, b"")))

    assert found(index, log, first) == [1, 3, 5, 7, 9]
    assert found(index, log, second) == [0, 2, 4, 6, 8]


def test_who_listens_hears_of_new_messages_of_a_key() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk)
    index.listened_for = {hash_of(SECRET, b"ann"): None, hash_of(SECRET, b"eve"): None}
    append(log, keyed((b"ann", b""), (b"bob", b"")))
    catch_up(index, log)

    assert index.heard() == {hash_of(SECRET, b"ann")}
    assert index.heard() == set()


def test_a_log_that_was_cut_since_is_looked_at_anew() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk)[1], index_of(disk)
    for number in range(20):
        append(log, keyed((b"%d" % number, b"x" * 50)))
    view = view_of(log, log.segments, Offset(0))
    log.truncate_to(Offset(3))

    with pytest.raises((OvertakenError, CorruptBatchError)):
        index.catch_up(view, EVERYTHING)

    for number in range(20):
        append(log, keyed((b"other-%d" % number, b"x" * 50)))
    assert found(index, log, b"7") == []
    assert found(index, log, b"other-7") == [10]


def test_what_lies_past_the_end_is_hidden_and_said_to_be_there() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk)
    for _ in range(3):
        append(log, keyed((b"ann", b"")))
    wanted = Wanted(b"ann", Offset(2), Offset(2), 10, EVERYTHING, Aborted())

    shown = index.find(view_of(log, log.segments, Offset(1)), wanted, EVERYTHING)

    assert (shown.rows, shown.next_offset, shown.hidden) == ([], 2, True)


def test_what_is_hidden_is_known_of_in_later_segments_too() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk)
    append(log, keyed((b"bob", b"")))
    log.roll()
    append(log, keyed((b"ann", b"")))
    wanted = Wanted(b"ann", Offset(0), Offset(1), 10, EVERYTHING, Aborted())

    shown = index.find(view_of(log, log.segments, Offset(0)), wanted, EVERYTHING)

    assert (shown.rows, shown.next_offset, shown.hidden) == ([], 1, True)


def test_what_is_packed_is_found_in_pieces_of_the_size_that_was_asked_for() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk)
    for _ in range(2):
        append(log, keyed(*((b"ann", b"x" * 10_000) for _ in range(50)), codec=Codec.ZSTD))
    assert log.active.size_bytes < 10_000

    offset, pages = Offset(0), list[list[int]]()
    while offset < log.log_end:
        wanted = Wanted(b"ann", offset, log.log_end, 1_000, 45_000, Aborted())
        page = index.find(view_of(log, log.segments, offset), wanted, EVERYTHING)
        pages.append([row[0] for row in page.rows])
        offset = page.next_offset

    assert max(map(len, pages)) == 5
    assert [one for page in pages for one in page] == list(range(100))


def test_the_first_messages_of_a_key_with_very_many_are_found_without_the_others() -> None:
    disk = SimulatedDisk()
    settings = TopicSettings(segment_bytes=64 << 20, index_keys=True)
    log, index = new_log(disk, settings)[1], index_of(disk)
    batch = keyed(*((b"hot", b"") for _ in range(50)))
    for _ in range(4_000):
        append(log, bytearray(batch))
    catch_up(index, log)
    wanted = Wanted(b"hot", Offset(0), log.log_end, 3, EVERYTHING, Aborted())
    began_s = time.process_time()
    for _ in range(50):
        page = index.find(view_of(log, log.segments, Offset(0)), wanted, EVERYTHING)

    assert [row[0] for row in page.rows] == [0, 1, 2]
    assert (time.process_time() - began_s) / 50 < 0.002


@pytest.mark.parametrize("size_bytes", [0, 200, 500])
@pytest.mark.parametrize("grows", [False, True])
def test_a_file_that_was_cut_behind_its_back_is_made_anew(size_bytes: int, grows: bool) -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk, block_entries=20)

    def more() -> None:
        for number in range(70):
            append(log, keyed((b"%d" % (number % 30), b"")))
            catch_up(index, log)

    more()
    (path,) = (log.path / one.name for one in disk.entries(log.path) if "keyindex" in one.name)
    disk.open(path).truncate(size_bytes)

    with pytest.raises(OvertakenError):
        more() if grows else found(index, log, b"29")

    index.forget()
    more()
    assert len(found(index, log, b"29")) >= 4


def test_of_very_many_aborted_transactions_some_are_looked_at_at_a_time() -> None:
    disk = SimulatedDisk()
    log, index = new_log(disk, WHOLE)[1], index_of(disk)
    for number in range(300):
        batch = BatchBuilder(
            producer_id=ProducerId(number % 3),
            producer_epoch=ProducerEpoch(0),
            base_sequence=number // 3,
            is_transactional=True,
        )
        batch.append(b"ann", b"%d" % number, timestamp=Millis(0))
        append(log, bytearray(batch.build()))
        end(log, number % 3, commit=number % 10 == 0)

    _, known = taken_back(log, Offset(0), log.log_end, 20)

    assert 40 <= known < 60
    assert len(found(index, log, b"ann")) == 30
    assert taken_back(log, known, log.log_end, 1_000)[1] == log.log_end


def _alike() -> tuple[bytes, bytes]:
    """Two keys with one hash of 32 bits: birthdays."""
    known: dict[int, bytes] = {}
    for number in range(1 << 20):
        key = b"%d" % number
        other = known.setdefault(hash_of(SECRET, key), key)
        if other != key:
            return other, key
    raise AssertionError("no two keys are alike")
