"""Our broker answers about transactions as Apache Kafka did, question by question.

The record is made, and checked against a real Kafka, by ``python -m tests.conformance``.
"""

from typing import Any

import pytest

from tests.apis.kit import ThreadedNode
from tests.conformance.interview import Interview
from tests.conformance.record import TRANSACTIONS, differences, recorded
from tests.conformance.transaction_questions import OPTIONS, ask_all

# Where we answer otherwise, on purpose.
OURS = {"mix: internal": "an internal topic is refused as such, whoever's transaction it is"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    options = {name.replace(".", "_"): value for name, value in OPTIONS.items()}
    with (
        ThreadedNode(tmp_path_factory.mktemp("asked") / "data", None, **options) as running,
        Interview(*running.address) as interview,
    ):
        ask_all(interview)
    return interview.answers


def test_every_answer_is_kafkas_own(answers: dict[str, Any]) -> None:
    expected = {name: told for name, told in recorded(TRANSACTIONS).items() if name not in OURS}
    found = {name: told for name, told in answers.items() if name not in OURS}

    assert not differences(expected, found)


def test_where_we_differ_on_purpose_we_do(answers: dict[str, Any]) -> None:
    kafkas = recorded(TRANSACTIONS)

    assert [name for name in OURS if answers[name] == kafkas[name]] == []
    assert len(answers) > 500
