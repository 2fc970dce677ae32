from uuid import UUID

import pytest

from waystation.model.errors import MalformedFrameError, UnsupportedVersionError
from waystation.wire.message import Message, Struct
from waystation.wire.primitives import ZERO_UUID
from waystation.wire.schema import (
    Part,
    array,
    boolean,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    octets,
    records,
    string,
    struct_of,
    tagged,
    uint16,
    uuid,
)
from waystation.wire.versions import Spoken, Versions

SPOKEN = Spoken(Versions.parse("0-3"), Versions.parse("2+"))
"""Versions 0 and 1 are legacy, 2 and 3 flexible."""


class Leaf(Struct):
    number: int = field(int16)
    label: str | None = field(string, nullable="1+")


class Branch(Struct):
    leaves: list[Leaf] = field(array(Leaf))
    token: bytes = field(octets)


class Tree(Message, spoken=SPOKEN):
    flag: bool = field(boolean)
    height: float = field(float64)
    port: int = field(uint16)
    size: int = field(int8)
    age: int = field(int64, "1+", default=-1)
    owner: UUID = field(uuid, "1+")
    branches: list[Branch] | None = field(array(Branch), nullable="1+")
    names: list[str] = field(array(string))
    ids: list[UUID] = field(array(uuid))
    ring: Leaf | None = field(struct_of(Leaf), "2+", nullable="2+")
    root: Leaf = field(struct_of(Leaf), "3+")
    sap: Part | None = field(records, nullable="0+")
    note: str | None = tagged(0, string, "2+", default=None)
    crown: Leaf | None = tagged(1, struct_of(Leaf), "2+", default=None)
    depths: list[int] = tagged(3, array(int32), "2+")
    rank: int = tagged(200, int32, "2+", default=7)


class Name(Message, spoken=SPOKEN):
    name: str = field(string)


def full() -> Tree:
    return Tree(
        flag=True,
        height=2.5,
        port=65_535,
        size=-3,
        age=12,
        owner=UUID(int=99),
        branches=[Branch(leaves=[Leaf(number=1, label="a"), Leaf(number=2, label="")], token=b"t")],
        names=["", "é", "x" * 300],
        ids=[UUID(int=1), ZERO_UUID],
        ring=Leaf(number=4, label="ring"),
        root=Leaf(number=5, label="root"),
        sap=b"sap",
        note="",
        crown=Leaf(number=6, label="crown"),
        depths=[1, -2],
        rank=8,
    )


def read(data: bytes, version: int) -> Tree:
    return Tree.decode(memoryview(data), version)


# --- instances ------------------------------------------------------------------------------


def test_what_is_not_given_has_its_default() -> None:
    tree = Tree(size=4)

    assert (tree.flag, tree.height, tree.size, tree.age, tree.rank) == (False, 0.0, 4, -1, 7)
    assert (tree.owner, tree.names, tree.ring, tree.sap) == (ZERO_UUID, [], None, None)
    assert tree.root == Leaf(number=0, label=None)


def test_defaults_are_not_shared() -> None:
    Tree().names.append("x")
    Tree().root.number = 9

    assert Tree().names == []
    assert Tree().root.number == 0


def test_only_declared_fields_exist() -> None:
    with pytest.raises(TypeError, match="colour"):
        Tree(colour="green")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Tree().colour = "green"  # type: ignore[attr-defined]


def test_equality_is_that_of_all_fields() -> None:
    assert full() == full()
    assert full() != Tree()
    assert Leaf(number=1) != Branch()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Leaf())


def test_a_message_shows_what_differs_from_the_default_and_no_payload() -> None:
    shown = repr(Tree(size=4, root=Leaf(label="r"), sap=b"secret"))

    assert shown == "Tree(size=4, root=Leaf(label='r'), sap=<6 bytes>)"


# --- there and back -------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_comes_back(version: int) -> None:
    tree = full()
    if version == 2:
        tree.root = Leaf()

    assert read(tree.encode(version), version) == tree


def test_fields_that_a_version_lacks_are_left_out_and_come_back_as_defaults() -> None:
    found = read(full().encode(0), 0)

    assert (found.flag, found.names, found.branches) == (True, full().names, full().branches)
    assert (found.age, found.owner, found.ring, found.note, found.rank) == (
        -1,
        ZERO_UUID,
        None,
        None,
        7,
    )


def test_null_is_told_from_empty() -> None:
    for version in (1, 2):
        for branches, sap in ((None, None), ([], b"")):
            tree = Tree(branches=branches, sap=sap)

            found = read(tree.encode(version), version)

            assert found.branches == branches
            assert found.sap == sap


def test_tagged_fields_are_sent_only_when_they_say_something() -> None:
    silent = Tree().encode(2)

    assert Tree(crown=Leaf()).encode(2) == silent
    assert Tree(depths=[], rank=7).encode(2) == silent
    assert Tree(note="").encode(2) == silent[:-1] + b"\1\0\1\1"


def test_unknown_tagged_fields_are_passed_over() -> None:
    encoded = Tree(rank=8).encode(2)
    known = b"\1\xc8\1\4\0\0\0\x08"
    assert encoded.endswith(known)

    newer = encoded[: -len(known)] + b"\3" + b"\2\3abc" + known[1:] + b"\xc9\1\0"

    assert read(newer, 2) == Tree(rank=8)


# --- records by reference -------------------------------------------------------------------


class Region:
    nbytes = 5000


@pytest.mark.parametrize("version", [0, 2])
def test_records_are_a_part_of_their_own_and_are_not_copied(version: int) -> None:
    region = Region()

    before, found, *after = Tree(branches=[], sap=region).encode_parts(version)

    assert found is region
    in_memory = Tree(branches=[], sap=bytes(5000)).encode(version)
    assert before + bytes(5000) + b"".join(after) == in_memory


def test_decoded_records_are_a_view_of_the_frame() -> None:
    frame = bytearray(Tree(sap=b"abc").encode(1))
    found = read(frame, 1)

    frame[frame.index(b"abc")] = ord("X")

    assert isinstance(found.sap, memoryview)
    assert found.sap == b"Xbc"


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        (0, "", r"Name.name \(v0\): the frame ends here"),
        (0, "00", r"Name.name \(v0\): the frame ends here"),
        (0, "ffff", r"Name.name \(v0\): null where a value is required"),
        (0, "fffe", r"Name.name \(v0\): a length of -2 where 0 bytes are left"),
        (0, "0002aa", r"Name.name \(v0\): a length of 2 where 1 bytes are left"),
        (0, "0001ff", r"Name.name \(v0\): text that is not UTF-8"),
        (0, "00016100", r"Name \(v0\): ends at byte 3, should end at byte 4"),
        (2, "00", r"Name.name \(v2\): null where a value is required"),
        (2, "0361", r"Name.name \(v2\): a length of 2 where 1 bytes are left"),
        (2, "ffffffff0f", r"Name.name \(v2\): a length of 4294967294 where 0 bytes are left"),
        (2, "ffffffffff0f", r"Name.name \(v2\): a varint of more than 32 bits"),
        (2, "ff", r"Name.name \(v2\): the bytes end within a varint"),
        (2, "0261", r"Name \(v2\): the frame ends here"),
        (2, "02610105", r"Name \(tagged fields\) \(v2\): 1 tagged fields in 1 bytes"),
        (2, "0261010502aa", r"Name \(tagged fields\) \(v2\): a tagged field of 2 bytes in 1"),
    ],
)
def test_a_refusal_names_the_field_and_the_reason(version: int, data: str, reason: str) -> None:
    with pytest.raises(MalformedFrameError, match=f"^{reason}"):
        Name.decode(memoryview(bytes.fromhex(data)), version)


def test_a_refusal_names_a_field_of_an_element() -> None:
    encoded = Tree(branches=[Branch(leaves=[Leaf(number=1, label="abc")])]).encode(0)
    at = encoded.index(b"\0\3abc")
    wrong = encoded[:at] + b"\xff\xff" + encoded[at + 2 :]

    with pytest.raises(MalformedFrameError, match=r"^Tree.branches\[\].leaves\[\].label \(v0\)"):
        read(wrong, 0)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, -2, -(2**31)])
def test_a_count_that_the_bytes_cannot_hold_is_refused(count: int) -> None:
    encoded = Tree(branches=[], names=["abcdef"]).encode(0)
    at = encoded.index(b"\0\0\0\1\0\6abcdef")
    wrong = encoded[:at] + count.to_bytes(4, "big", signed=True) + encoded[at + 4 :]

    with pytest.raises(MalformedFrameError, match=f"^Tree.names .*{count} elements"):
        read(wrong, 0)


def test_a_tagged_field_must_fill_its_size() -> None:
    encoded = Tree(rank=8).encode(2)
    assert encoded.endswith(b"\xc8\1\4\0\0\0\x08")

    with pytest.raises(MalformedFrameError, match="should end at byte"):
        read(encoded[:-5] + b"\5\0\0\0\x08\0", 2)


def test_every_cut_of_a_frame_is_refused() -> None:
    for version in range(4):
        encoded = full().encode(version)
        for length in range(len(encoded)):
            with pytest.raises(MalformedFrameError):
                read(encoded[:length], version)


def test_a_version_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="Tree v4: versions 0 to 3 are spoken"):
        read(b"", 4)
    with pytest.raises(UnsupportedVersionError):
        Tree().encode(-1)


# --- bugs of the caller ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "field_name"),
    [
        (Tree(branches=None), "Tree.branches"),
        (Tree(branches=[Branch(leaves=[Leaf(label=None)])]), r"Tree.branches\[\].leaves\[\].label"),
        (Tree(branches=[], size=1000), "Tree.flag to Tree.branches"),
        (Tree(branches=[], names=["x" * 40_000]), r"Tree.names\[\]"),
        (Tree(branches=[], names=["\ud800"]), r"Tree.names\[\]"),
    ],
)
def test_a_value_that_the_version_cannot_express_is_named(tree: Tree, field_name: str) -> None:
    with pytest.raises(ValueError, match=f"^{field_name} .*v0"):
        tree.encode(0)
