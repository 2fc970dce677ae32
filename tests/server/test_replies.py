"""However late an earlier reply is, none overtakes it."""

import random
import struct
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.server.kit import DiskFile
from waystation.runtime.regions import FileRegion
from waystation.server.replies import Replies
from waystation.server.requests import Request


def request(number: int) -> Request:
    return Request(3, 4, number, None, memoryview(b""), cast(Any, None))


@given(st.integers(0, 30), st.randoms(use_true_random=False), st.sets(st.integers(0, 30)))
def test_replies_become_ready_in_the_order_of_their_requests(
    count: int, rng: random.Random, silent: set[int]
) -> None:
    replies = Replies()
    requests = [request(number) for number in range(count)]
    for one in requests:
        replies.expect(one)
    left = b""
    for one in rng.sample(requests, count):
        number = one.correlation_id
        replies.settle(one, None if number in silent else [struct.pack(">i", number)])
        if rng.random() < 0.5:
            parts, nbytes, in_memory = replies.take()
            assert in_memory
            assert nbytes == sum(map(len, cast(list[bytes], parts)))
            left += b"".join(cast(list[bytes], parts))
    left += b"".join(cast(list[bytes], replies.take()[0]))

    assert len(replies) == 0
    assert left == b"".join(
        struct.pack(">ii", 4, number) for number in range(count) if number not in silent
    )


def test_a_reply_with_a_file_says_so_and_empty_parts_are_left_out() -> None:
    replies = Replies()
    one = request(1)
    replies.expect(one)
    region = FileRegion(cast(DiskFile, None), 0, 100)
    replies.settle(one, [b"head", b"", memoryview(b""), bytearray(b"body"), region])

    parts, nbytes, in_memory = replies.take()

    assert parts == [struct.pack(">i", 108) + b"head", bytearray(b"body"), region]
    assert (nbytes, in_memory) == (112, False)
