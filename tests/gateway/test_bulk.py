"""Bulk in and out over HTTP: streams of lines, in bounded memory, however long and packed."""

import gzip
import http.client
import json
import random
import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest
import zstandard
from tests.support.figures import figure
from tests.support.http_client import HttpClient
from tests.support.soak import count

from waystation.gateway.bulk_in import Intake
from waystation.gateway.incoming import Incoming
from waystation.gateway.problems import ProblemError
from waystation.gateway.routes import Call
from waystation.gateway.topics import TopicParams
from waystation.testing.process import BrokerProcess

NDJSON = "application/x-ndjson"
DUMP_BYTES = count(40 << 20, 1 << 30)
MEMORY_BYTES = 24 << 20


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[HttpClient]:
    with HttpClient(broker.http) as one:
        yield one


@pytest.fixture
def path(client: HttpClient, topic: str) -> str:
    assert client.post("/v1/topics", {"name": topic, "partitions": 1}).status == 201
    return f"/v1/topics/{topic}/messages/stream"


def lines(count: int) -> list[bytes]:
    return [
        json.dumps({"value": f"v{n}", "key": f"k{n % 7}"}).encode() + b"\n" for n in range(count)
    ]


def send(
    client: HttpClient, path: str, body: bytes | Iterable[bytes], **headers: str
) -> tuple[int, dict[str, object]]:
    told = {"content-type": NDJSON, **{name.replace("_", "-"): v for name, v in headers.items()}}
    answer = client.ask("POST", path, body, told)  # type: ignore[arg-type]
    return answer.status, answer.json


def values(client: HttpClient, path: str, query: str = "", **headers: str) -> list[str]:
    answer = client.get(path + query, **headers)
    assert answer.status == 200, answer
    body = answer.body
    packing = answer.headers.get("content-encoding")
    if packing == "gzip":
        body = gzip.decompress(body)
    elif packing == "zstd":
        body = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return [json.loads(line)["value"] for line in body.splitlines()]


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_lines_go_in_and_come_out_in_order(client: HttpClient, path: str, packing: str) -> None:
    body = b"".join(lines(5_000))
    half = len(body) // 2
    packed = PACKINGS[packing](body[:half]) + PACKINGS[packing](body[half:])
    pieces = [packed[at : at + 10_007] for at in range(0, len(packed), 10_007)]

    told = send(client, path, iter(pieces), content_encoding=packing)

    assert told == (200, {"stored": 5_000, "ended": None})
    assert values(client, path, **{"accept-encoding": packing}) == [f"v{n}" for n in range(5_000)]


def test_a_wrong_line_ends_it_and_says_where(client: HttpClient, path: str) -> None:
    good = lines(3_000)
    for wrong, field in (
        (b"{\n", "line 2001"),
        (b'{"value": "x", "keey": 1}\n', "line 2001: keey"),
        (b'{"key": "x"}\n', "line 2001: value"),
        (b'{"value": "\xff"}\n', "line 2001: value"),
    ):
        status, told = send(client, path, b"".join([*good[:2_000], wrong, *good[2_000:]]))
        ended = told["ended"]

        assert (status, told["stored"]) == (207, 2_000)
        assert isinstance(ended, dict)
        assert (ended["line"], ended["problem"]["field"]) == (2_001, field)
    assert len(values(client, path)) == 8_000

    status, told = send(client, path, b"\n\n{\n")
    assert (status, told["field"]) == (400, "line 3")


def test_what_cannot_be_stored_is_told_by_its_line(client: HttpClient, path: str) -> None:
    good = lines(10)
    large = json.dumps({"value": "x" * 2_000_000}).encode() + b"\n"
    status, told = send(client, path, b"".join([*good, b"\n", large]))
    ended = told["ended"]

    assert (status, told["stored"]) == (207, 10)
    assert isinstance(ended, dict)
    assert (ended["line"], ended["problem"]["status"]) == (12, 413)


def test_one_message_on_one_line_is_json_and_a_stream(client: HttpClient, path: str) -> None:
    told = client.ask("POST", path, b'{"value": "one"}', {"content-type": "application/json"})
    assert (told.status, told.json) == (200, {"stored": 1, "ended": None})


def test_a_line_is_a_message_and_a_message_a_line(client: HttpClient, path: str) -> None:
    for kind in (NDJSON, "application/json"):
        for body in (b'{\n"value": "one"\n}', b'{"value": 1}{"value": 2}\n'):
            told = client.ask("POST", path, body, {"content-type": kind})
            assert (told.status, told.json["field"]) == (400, "line 1"), body
    status, some = send(client, path, b'{"value": 1}\n\n{"value":\n2}\n{"value": 3}\n')
    assert (status, some["stored"]) == (207, 1)
    assert some["ended"]["line"] == 3  # type: ignore[index]
    assert values(client, path) == ["1"]


def test_what_is_cut_short_is_told(client: HttpClient, path: str) -> None:
    rng = random.Random(1)
    body = b"".join(b'{"value": "%x"}\n' % rng.getrandbits(256) for _ in range(20_000))
    for packing in ("gzip", "zstd"):
        packed = PACKINGS[packing](body)
        status, told = send(client, path, packed[: len(packed) // 2], content_encoding=packing)
        assert status == 207, told
        assert 0 < int(str(told["stored"])) < 20_000
        status, told = send(client, path, b"x" + packed, content_encoding=packing)
        assert (status, told["field"]) == (400, "Content-Encoding")
    assert send(client, path, b"", content_encoding="br")[0] == 415
    assert client.ask("POST", path, b"{}", {"content-type": "text/plain"}).status == 415
    assert (
        client.ask("POST", "/v1/topics/none/messages/stream", b"", {"content-type": NDJSON}).status
        == 404
    )
    assert send(client, path, b"") == (200, {"stored": 0, "ended": None})


def test_keys_and_times_work_in_lines_too(client: HttpClient, topic: str) -> None:
    body = {"name": topic, "partitions": 1, "config": {"schedule.enable": "true"}}
    assert client.post("/v1/topics", body).status == 201
    path = f"/v1/topics/{topic}/messages/stream"
    sent = b'{"value": "a", "idempotency_key": "1"}\n{"value": "b"}\n' * 2
    sent += b'{"value": "later", "deliver_after": "1h"}\n'

    assert send(client, path, sent) == (200, {"stored": 5, "ended": None})
    assert sorted(values(client, path)) == ["a", "b", "b"]


def test_a_dump_may_begin_and_end_anywhere(client: HttpClient, path: str, topic: str) -> None:
    assert send(client, path, b"".join(lines(1_000)))[0] == 200

    assert values(client, path, "?partition=0&offset=990&limit=5") == [
        f"v{n}" for n in range(990, 995)
    ]
    assert values(client, path, "?partition=0&offset=1000") == []
    assert len(values(client, path, "?where=key%3D'k3'")) == 143
    assert values(client, path, "?since=2999-01-01T00:00:00Z") == []
    assert len(values(client, path, "?since=0&limit=7")) == 7
    assert client.get(path + "?offset=3").status == 400
    assert client.get(path + "?partition=0&offset=1001").status == 416
    assert client.get(path + "?partition=1").status == 404
    assert client.get("/v1/topics/none/messages/stream").status == 404


def memory_bytes(broker: BrokerProcess) -> int:
    return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * resource.getpagesize()


class Watching:
    """The most memory that a broker takes, meanwhile."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.before = self.most = memory_bytes(broker)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Watching":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, memory_bytes(self._broker))

    @property
    def more(self) -> int:
        return self.most - self.before


@pytest.mark.timeout(1_800)
def test_a_large_dump_goes_in_and_out_in_little_memory(
    broker: BrokerProcess, client: HttpClient, topic: str
) -> None:
    """Packed, so that what comes is a bomb to who would unpack it whole; and as it is."""
    body = {"name": topic, "partitions": 3, "config": {"durability": "memory"}}
    assert client.post("/v1/topics", body).status == 201
    path = f"/v1/topics/{topic}/messages/stream"
    line = json.dumps({"value": "x" * 980}).encode() + b"\n"
    total = DUMP_BYTES // len(line)
    few = 256

    def packed() -> Iterator[bytes]:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        for _ in range(total // few):
            yield packer.compress(line * few)
        yield packer.flush()

    def plain() -> Iterator[bytes]:
        for _ in range(total // few):
            yield line * few

    for name, pieces, headers in (
        ("gzip", packed(), {"content_encoding": "gzip"}),
        ("plain", plain(), {}),
    ):
        began = time.monotonic()
        with Watching(broker) as watching:
            status, told = send(client, path, pieces, **headers)
        took_s = time.monotonic() - began
        assert (status, told["stored"]) == (200, total // few * few)
        assert watching.more < MEMORY_BYTES
        figure(
            f"{DUMP_BYTES >> 20} MiB of lines in ({name}): {took_s:.1f} s, "
            f"{DUMP_BYTES / took_s / 1e6:.0f} MB/s, {watching.more >> 20} MiB more memory"
        )
    for packing in ("identity", "gzip"):
        began = time.monotonic()
        with Watching(broker) as watching:
            found, size = counted(broker, path, packing)
        took_s = time.monotonic() - began
        assert found == 2 * (total // few * few)
        assert watching.more < MEMORY_BYTES
        figure(
            f"{size >> 20} MiB of lines out ({packing}): {took_s:.1f} s, "
            f"{size / took_s / 1e6:.0f} MB/s, {watching.more >> 20} MiB more memory"
        )


def counted(broker: BrokerProcess, path: str, packing: str) -> tuple[int, int]:
    """How many lines and bytes come."""
    connection = http.client.HTTPConnection(broker.http, timeout=120)
    connection.request("GET", path, headers={"accept-encoding": packing})
    answer = connection.getresponse()
    unpacking = zlib.decompressobj(31) if packing == "gzip" else None
    found = size = 0
    while content := answer.read(1 << 20):
        plain = content if unpacking is None else unpacking.decompress(content)
        found += plain.count(b"\n")
        size += len(plain)
    connection.close()
    return found, size


def test_who_does_not_read_a_dump_holds_nothing_but_itself_up(
    broker: BrokerProcess, client: HttpClient, path: str
) -> None:
    big = json.dumps({"value": "x" * 10_000}).encode() + b"\n"
    assert send(client, path, big * 2_000)[0] == 200
    slow = []
    with Watching(broker) as watching:
        for _ in range(20):
            one = socket.create_connection(tuple(broker.http.rsplit(":", 1)))
            one.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            slow.append(one)
        for _ in range(3):
            assert len(values(client, path)) == 2_000
    for one in slow:
        one.close()

    assert watching.more < MEMORY_BYTES


async def test_only_so_many_streams_come_in_at_once() -> None:
    call = cast("Call[TopicParams, Incoming]", None)

    with pytest.raises(ProblemError) as refused:
        await Intake(0).send_stream(call)

    assert refused.value.problem.status == 503
