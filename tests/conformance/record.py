"""What Apache Kafka answered, kept beside the questions, and how other answers differ from it."""

import json
from pathlib import Path
from typing import Any

GROUPS, TRANSACTIONS = "kafka_answers.json", "kafka_transaction_answers.json"


def recorded(name: str) -> dict[str, Any]:
    """Kafka's answers by question."""
    answers: dict[str, Any] = json.loads(_path(name).read_text())["answers"]
    return answers


def _path(name: str) -> Path:
    return Path(__file__).with_name(name)


def keep(name: str, version: str, answers: dict[str, Any]) -> None:
    """Write answers down, one line each, so that a change is seen in a diff."""
    lines = [f"  {json.dumps(asked)}: {json.dumps(told)}" for asked, told in answers.items()]
    body = ",\n".join(lines)
    _path(name).write_text(f'{{"kafka": {json.dumps(version)}, "answers": {{\n{body}\n}}}}\n')


def differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """A line for every question that was answered otherwise, or not at all."""
    return [
        f"{name}\n  kafka {expected.get(name)}\n  found {found.get(name)}"
        for name in {**expected, **found}
        if expected.get(name) != found.get(name)
    ]
