"""The wire and its messages think and never wait: no clock, disk, socket, chance or logger.

The layers contract forbids imports; this also looks at what the source says, so that a
function-level import or an ``await`` does not slip in.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import waystation

ROOT = Path(waystation.__file__).parent
SOURCES = sorted([*ROOT.glob("wire/*.py"), *ROOT.glob("messages/*.py")])

ALLOWED = {
    "collections.abc",
    "contextlib",
    "dataclasses",
    "enum",
    "functools",
    "operator",
    "struct",
    "types",
    "typing",
    "uuid",
}
"""``uuid`` for its type only: who makes new ids is outside."""


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_impure_is_imported_or_awaited(path: Path) -> None:
    tree = ast.parse(path.read_text())
    below = ("waystation.model.", "waystation.wire.")
    if path.parent.name == "messages":
        below += ("waystation.messages.",)

    assert [
        name for name in imports(tree) if name not in ALLOWED and not name.startswith(below)
    ] == []
    assert not any(isinstance(node, ast.Await | ast.AsyncFunctionDef) for node in ast.walk(tree))


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 25
