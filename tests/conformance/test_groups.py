"""Our broker answers as Apache Kafka did, question by question.

The record is made, and checked against a real Kafka, by ``python -m tests.conformance``.
"""

from typing import Any

import pytest

from tests.apis.kit import ThreadedNode
from tests.conformance.group_questions import OPTIONS, ask_all
from tests.conformance.interview import Interview
from tests.conformance.record import GROUPS, differences, recorded

# Where we answer otherwise, on purpose.
OURS = {
    f"server-side v{version}: {question}": reason
    for version in (0, 1)
    for question, reason in {
        "commit v8: a member": "an epoch is good in every version that has a place for it",
        "commit v9: a stale one": "only the current epoch is good, as in Kafka before 4.3",
        "commit v10: a stale one": "only the current epoch is good, as in Kafka before 4.3",
        "for classic eyes": "tools that know only DescribeGroups see these groups too",
        "listed": "those who stay get what a member leaves behind at once, not when they ask",
        "empty": "an empty group has an assignment of its own epoch",
        "nameless": "we also say why",
    }.items()
}


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
    expected = {name: told for name, told in recorded(GROUPS).items() if name not in OURS}
    found = {name: told for name, told in answers.items() if name not in OURS}

    assert not differences(expected, found)


def test_where_we_differ_on_purpose_we_do(answers: dict[str, Any]) -> None:
    kafkas = recorded(GROUPS)

    assert [name for name in OURS if answers[name] == kafkas[name]] == []
    assert len(answers) > 500
