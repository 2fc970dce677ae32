"""``waystation txn`` against a real broker, which runs in this process.

So that a test can put a transaction into a partition behind the coordinators' backs: one
that hangs is what no request brings about.
"""

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.apis.kit import ThreadedNode, batch_of
from tests.apis.transacting import Transacting, Writer
from tests.support.command import waystation

from waystation.cli.main import main
from waystation.model.errors import ErrorCode
from waystation.runtime.clock import SystemClock

LEADER_ALONE = 1
HANGING = 4_711
TIMEOUT_MS = 60_000


def identity(writer: Writer) -> tuple[object, ...]:
    """The options that name a transaction, together with its transactional id."""
    return ("--producer", writer.producer_id, "--epoch", writer.epoch)


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, Any]]:
        """What it printed with ``--json``."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


class Txn:
    """Runs ``waystation txn`` in this process: an interpreter each would show nothing more."""

    def __init__(self, bootstrap: str, output: pytest.CaptureFixture[bytes]) -> None:
        self._bootstrap, self._output = bootstrap, output

    def __call__(self, *arguments: object) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(["txn", *map(str, arguments), "--bootstrap", self._bootstrap])
        captured = self._output.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, captured.out.decode(), captured.err.decode())

    def state_of(self, name: str) -> str:
        """The state of a transactional id, in one word."""
        (told,) = self("describe", name, "--json").lines()
        return str(told["state"])

    def outcome_of(self, writer: Writer) -> dict[str, Any]:
        """What became of a transaction."""
        (told,) = self("outcome", writer.name, *identity(writer), "--json").lines()
        return told

    def until(self, name: str, state: str) -> None:
        """Wait until the markers are written."""
        deadline = time.monotonic() + 10
        while (found := self.state_of(name)) != state:
            assert time.monotonic() < deadline, f"{name} stays {found}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedNode]:
    options = {"transaction_state_log_num_partitions": "2"}
    with ThreadedNode(tmp_path_factory.mktemp("txn") / "data", **options) as running:
        yield running


@pytest.fixture
def client(node: ThreadedNode) -> Iterator[Transacting]:
    with Transacting(*node.address) as connected:
        yield connected


@pytest.fixture
def bootstrap(node: ThreadedNode) -> str:
    host, port = node.address
    return f"{host}:{port}"


@pytest.fixture
def txn(bootstrap: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Txn:
    return Txn(bootstrap, capsysbinary)


@pytest.fixture
def orders(client: Transacting, topic: str) -> str:
    """A topic with one record."""
    client.create(topic, partitions=2)
    assert client.produce(topic, batch_of(b"before")).error_code == 0
    return topic


@pytest.fixture
def begun(client: Transacting, orders: str) -> Writer:
    """A producer with an open transaction, which has written one record behind it."""
    writer = client.writer(f"id-{orders}", timeout_ms=TIMEOUT_MS)
    assert client.write(writer, orders, b"v") == 0
    return writer


@pytest.fixture
def prepared(client: Transacting, begun: Writer) -> Writer:
    """The same, prepared."""
    assert client.prepare(begun).error_code == 0
    return begun


# --- list and describe ------------------------------------------------------------------------


def test_transactions_are_listed_and_chosen(client: Transacting, txn: Txn, begun: Writer) -> None:
    other = client.writer(f"{begun.name}-idle")

    def names(*options: object) -> list[str]:
        return [one["transactional_id"] for one in txn("list", "--json", *options).lines()]

    assert {begun.name, other.name} <= set(names())
    assert begun.name in names("--state", "Ongoing")
    assert other.name not in names("--state", "Ongoing")
    assert names("--producer", begun.producer_id) == [begun.name]
    assert begun.name not in names("--open-for", "1h")
    (own,) = [one for one in txn("list", "--json").lines() if one["producer"] == begun.producer_id]
    assert (own["state"], own["coordinator"]) == ("Ongoing", 1)


def test_lists_are_tables_for_people(txn: Txn, begun: Writer) -> None:
    listed = txn("list", "--producer", begun.producer_id)
    none = txn("list", "--producer", 999_999_999)

    titles, row = listed.out.splitlines()
    assert titles.split() == ["TRANSACTIONAL", "ID", "STATE", "PRODUCER", "COORDINATOR"]
    assert row.split()[:2] == [begun.name, "Ongoing"]
    assert (none.code, none.out, none.err) == (0, "", "there are no such transactions\n")


def test_a_state_that_does_not_exist_is_one_line(txn: Txn) -> None:
    ended = txn("list", "--state", "Asleep")

    assert ended.code == 1
    assert ended.err.startswith("waystation: no transaction is ever Asleep: try Ongoing")


def test_a_description_tells_where_a_transaction_begins(
    txn: Txn, begun: Writer, orders: str
) -> None:
    (told,) = txn("describe", begun.name, "--json").lines()
    shown = txn("describe", begun.name)

    assert (told["state"], told["producer"], told["epoch"]) == (
        "Ongoing",
        begun.producer_id,
        begun.epoch,
    )
    assert told["timeout_ms"] == TIMEOUT_MS
    assert 0 <= told["open_seconds"] < 60
    (where,) = told["partitions"]
    assert (where["topic"], where["partition"], where["first_offset"]) == (orders, 0, 1)
    assert where["last_written_at"] <= SystemClock().now()
    assert f"{begun.name}: Ongoing for " in shown.err
    assert "FIRST OFFSET" in shown.out


def test_an_unknown_transactional_id_is_one_line(txn: Txn) -> None:
    for arguments in (("describe", "nobody"), ("abort", "nobody", "--yes")):
        ended = txn(*arguments)

        assert ended.code == 1
        assert ended.err == (
            "waystation: transactional id nobody is not known: `waystation txn list` shows those "
            "that are\n"
        )


# --- abort ------------------------------------------------------------------------------------


def test_an_abort_lets_readers_pass_and_shows_them_nothing(
    client: Transacting, txn: Txn, begun: Writer, orders: str
) -> None:
    assert client.committed(orders) == [b"before"]

    (told,) = txn("abort", begun.name, "--yes", "--json").lines()

    assert told == {
        "transactional_id": begun.name,
        "producer": begun.producer_id,
        "epoch": begun.epoch,
        "aborted": True,
    }
    txn.until(begun.name, "CompleteAbort")
    assert client.produce(orders, batch_of(b"after")).error_code == 0
    assert client.committed(orders) == [b"before", b"after"]
    assert client.end(begun, commit=True).error_code == ErrorCode.INVALID_TXN_STATE


def test_an_abort_of_what_has_ended_is_refused(
    client: Transacting, txn: Txn, begun: Writer
) -> None:
    client.commit(begun)
    txn.until(begun.name, "CompleteCommit")

    ended = txn("abort", begun.name, "--yes")

    assert ended.code == 1
    assert "has no open transaction: its last is CompleteCommit" in ended.err


def test_a_prepared_transaction_is_aborted_on_purpose_only(txn: Txn, prepared: Writer) -> None:
    name = prepared.name
    refused = txn("abort", name, "--yes")
    before = txn.outcome_of(prepared)
    assert (refused.code, before["state"]) == (1, "prepared")
    assert "is prepared" in refused.err
    assert txn.state_of(name) == "Prepared"

    assert txn("abort", name, "--prepared", "--yes").code == 0
    txn.until(name, "CompleteAbort")
    after = txn.outcome_of(prepared)
    assert after["state"] == "aborted"
    assert after["at"] >= before["at"]


# --- outcome ----------------------------------------------------------------------------------


def test_an_outcome_is_known_when_the_id_has_gone_on(
    client: Transacting, txn: Txn, prepared: Writer, orders: str
) -> None:
    client.commit(prepared)
    assert client.write(client.writer(prepared.name), orders, b"next") == 0

    shown = txn("outcome", prepared.name, *identity(prepared))

    assert txn.state_of(prepared.name) == "Ongoing"
    assert shown.code == 0
    assert shown.out.splitlines()[1].split()[0] == "committed"


def test_the_outcome_of_what_never_was_is_unknown(txn: Txn) -> None:
    (told,) = txn("outcome", "nobody", "--producer", 1, "--epoch", 0, "--json").lines()

    assert (told["state"], told["at"]) == ("unknown", None)


# --- what hangs -------------------------------------------------------------------------------


@pytest.fixture
def hanging(node: ThreadedNode, orders: str) -> str:
    """A topic with a transaction, behind its one record, that no coordinator knows of."""
    batch = bytearray(batch_of(b"late", producer=(HANGING, 0, 0), transactional=True))

    def append() -> None:
        partition = node.node.broker.replicas.get(orders, 0)
        partition.append(memoryview(batch), LEADER_ALONE, SystemClock().now())

    node.call(append)
    return orders


def test_what_hangs_is_found_and_ended(client: Transacting, txn: Txn, hanging: str) -> None:
    look = ("find-hanging", "--topic", hanging, "--older-than", "0s")
    (found,) = txn(*look, "--json").lines()
    shown = txn(*look)
    assert (found["topic"], found["partition"]) == (hanging, 0)
    assert (found["producer"], found["first_offset"]) == (HANGING, 1)
    assert "FIRST OFFSET" in shown.out
    assert "waystation txn abort --partition" in shown.err
    assert client.committed(hanging) == [b"before"]

    place = ("--partition", f"{hanging}:0", "--producer", HANGING)
    (ended,) = txn("abort", *place, "--yes", "--json").lines()
    assert (ended["aborted"], ended["first_offset"]) == (True, 1)
    client.await_stable(hanging)
    assert client.produce(hanging, batch_of(b"after")).error_code == 0
    assert client.committed(hanging) == [b"before", b"after"]
    assert txn(*look).err == "no transaction hangs\n"
    again = txn("abort", *place, "--yes")
    assert again.code == 1
    assert f"producer {HANGING} has no open transaction in partition {hanging}-0" in again.err


def test_young_transactions_and_known_ones_do_not_hang(
    txn: Txn, hanging: str, begun: Writer
) -> None:
    """The first is younger than any time-out may be, the second has a coordinator."""
    assert txn("find-hanging").err == "no transaction hangs\n"
    found = txn("find-hanging", "--topic", hanging, "--older-than", "0s", "--json").lines()
    assert [one["producer"] for one in found] == [HANGING]

    place = ("--partition", f"{hanging}:0", "--producer", begun.producer_id)
    refused = txn("abort", *place, "--yes")
    assert refused.code == 1
    assert f"it belongs to transactional id {begun.name}" in refused.err


def test_topics_that_are_not_there_are_one_line(txn: Txn) -> None:
    ended = txn("find-hanging", "--topic", "no-such-topic")

    assert ended.code == 1
    assert "topic no-such-topic does not exist" in ended.err


# --- the command itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["abort"],
        ["abort", "id", "--producer", "1"],
        ["abort", "--producer", "1"],
        ["abort", "--partition", "orders:0"],
        ["abort", "--partition", "orders:²", "--producer", "1"],
        ["abort", "--partition", "orders", "--producer", "1"],
        ["abort", "--partition", ":0", "--producer", "1"],
        ["abort", "--partition", "orders:0", "--producer", "1", "--prepared"],
        ["list", "--open-for", "soon"],
        ["find-hanging", "--older-than", "soon"],
        ["outcome", "id"],
        ["outcome", "id", "--producer", "one", "--epoch", "0"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(txn: Txn, arguments: list[str]) -> None:
    assert txn(*arguments).code == 2


def test_it_works_from_a_shell_too(bootstrap: str, begun: Writer) -> None:
    ended = waystation("txn", "describe", begun.name, "--bootstrap", bootstrap)

    assert ended.code == 0
    assert begun.name in ended.err
