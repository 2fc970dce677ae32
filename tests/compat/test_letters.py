"""The comparison behind ``make compat`` notices what a client or broker could do to a record."""

import json
from typing import Any

import pytest

from tests.compat.letters import CODECS, PARTITIONS, WrongAnswerError, check, letters, topic


def read_back() -> list[dict[str, Any]]:
    """The letters as a perfect client prints them."""
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    records = []
    for letter in letters():
        records.append({**letter, "offset": offsets[letter["partition"]]})
        offsets[letter["partition"]] += 1
    return [{**record, "topic": topic("x", codec)} for codec in CODECS for record in records]


def check_records(records: list[dict[str, Any]]) -> None:
    check("x", [json.dumps(record) for record in records])


def test_letters_that_come_back_as_they_were_sent_pass() -> None:
    check_records(read_back())


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("key", "00"),
        ("value", None),
        ("timestamp", 1),
        ("offset", 99),
        ("headers", [["header-0", None]]),
        ("partition", 1),
    ],
)
def test_a_changed_field_is_noticed(name: str, wrong: object) -> None:
    records = read_back()
    records[-2][name] = wrong

    with pytest.raises(WrongAnswerError):
        check_records(records)


def test_a_lost_a_doubled_and_a_swapped_record_are_noticed() -> None:
    lost, doubled, swapped = read_back()[1:], read_back(), read_back()
    doubled.append(doubled[0])
    swapped[0], swapped[2] = swapped[2], swapped[0]

    for records in (lost, doubled, swapped):
        with pytest.raises(WrongAnswerError):
            check_records(records)
