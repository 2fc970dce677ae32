"""docs/requirements.md tells the truth about what is built and what is not.

The page is checked by ``problems``, which is itself tried on planted faults below: a page that
names an id nobody asked for, forgets one, points at a test or page that is not there, or leaves
a row pending for a part that has arrived.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "requirements.md"

# Letter -> how many requirements carry it, numbered from 01 without a gap.
ASKED = {
    "S": 5, "F": 22, "N": 10, "C": 11, "A": 9, "D": 14, "K": 13, "T": 9,
    "B": 2, "P": 7, "G": 4, "R": 9, "X": 4, "Z": 4, "E": 4, "U": 2,
}  # fmt: skip
IDS = [f"{letter}-{n:02}" for letter, last in ASKED.items() for n in range(1, last + 1)]

_PENDING = re.compile(r"pending: (.+)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def problems(page: str) -> list[str]:
    """Everything that is wrong with the page, one sentence each."""
    parts = _parts(page)
    rows = _rows(page)
    found = _wrong_ids([row[0] for row in rows])
    for row in rows:
        if len(row) != 4 or not row[1]:
            found.append(f"{row[0]} needs a requirement, a page and a proof")
            continue
        found += [f"{row[0]}: {fault}" for fault in _wrong_page(row) + _wrong_proof(row, parts)]
    return found + _wrong_parts(parts, rows)


def _rows(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if re.match(r"\| [A-Z]-\d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def _parts(page: str) -> dict[str, str]:
    """The parts still to come: name -> the path that appears when the part arrives."""
    section = page.partition("\n## Parts still to come\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| ([^|`]+) \| `([^`]+)` \|$", section, re.MULTILINE))


def _wrong_ids(ids: list[str]) -> list[str]:
    return (
        [f"nobody asked for {one}" for one in ids if one not in IDS]
        + [f"{one} is missing" for one in IDS if one not in ids]
        + [f"{one} stands {times} times" for one, times in Counter(ids).items() if times > 1]
    )


def _wrong_page(row: list[str]) -> list[str]:
    links = _LINK.findall(row[2])
    if not links:
        built = any(item for item in row[3].split("<br>") if not _PENDING.fullmatch(item))
        wrong = built or row[2] != "-"
        return ["names no page, which only a pending row may"] if wrong else []
    return [f"page {link} does not exist" for link in links if not (PAGE.parent / link).is_file()]


def _wrong_proof(row: list[str], parts: dict[str, str]) -> list[str]:
    found = []
    for item in row[3].split("<br>"):
        if pending := _PENDING.fullmatch(item):
            if pending[1] not in parts:
                found.append(f"is left behind: {pending[1]!r} is no part still to come")
        elif not (test := _TEST.fullmatch(item)):
            found.append(f"{item!r} is neither a test nor pending")
        elif test[2] not in _functions(ROOT / test[1]):
            found.append(f"{test[1]} has no {test[2]}")
    return found


def _wrong_parts(parts: dict[str, str], rows: list[list[str]]) -> list[str]:
    waited_for = {item for row in rows for item in row[-1].split("<br>")}
    return [
        f"{part!r} has arrived as {path}: its rows must name their tests"
        for part, path in parts.items()
        if (ROOT / path).exists()
    ] + [f"no row waits for {part!r}" for part in parts if f"pending: {part}" not in waited_for]


@cache
def _functions(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse(path.read_bytes()))
    return frozenset(node.name for node in nodes if isinstance(node, definitions))


def test_every_requirement_has_its_page_and_its_proof() -> None:
    assert problems(PAGE.read_text()) == []


def sound_page() -> str:
    """A page without a fault, on which faults are planted: one part, awaited by U-02."""
    proof = "`tests/architecture/test_requirements.py::test_a_sound_page_has_no_problems`"
    built = [f"| {one} | Words. | [README](../README.md) | {proof} |" for one in IDS[:-1]]
    parts = ["\n## Parts still to come\n", "| part | arrives with |", "| wings | `nowhere` |"]
    return "\n".join([*parts, "\n## Rows\n", *built, "| U-02 | Words. | - | pending: wings |\n"])


def test_a_sound_page_has_no_problems() -> None:
    assert problems(sound_page()) == []


# The problem that must be reported -> what to write instead of what.
PLANTED = {
    "nobody asked for Q-01": ("| U-02 |", "| Q-01 |"),
    "U-02 is missing": ("| U-02 |", "| Q-01 |"),
    "S-01 stands 2 times": ("| S-02 |", "| S-01 |"),
    "S-01 needs a requirement, a page and a proof": ("| Words. ", ""),
    "S-01: tests/architecture/test_requirements.py has no test_x_has_no_problems": (
        "test_a_sound_page",
        "test_x",
    ),
    "S-01: tests/nowhere.py has no test_a_sound_page_has_no_problems": (
        "tests/architecture/test_requirements.py",
        "tests/nowhere.py",
    ),
    "S-01: page ../NOWHERE.md does not exist": ("../README.md", "../NOWHERE.md"),
    "S-01: names no page, which only a pending row may": ("[README](../README.md)", "-"),
    "U-02: 'some day' is neither a test nor pending": ("pending: wings", "some day"),
    "U-02: is left behind: 'wings' is no part still to come": ("| wings | `nowhere` |", ""),
    "'wings' has arrived as src: its rows must name their tests": ("`nowhere`", "`src`"),
    "no row waits for 'wheels'": ("| wings |", "| wheels | `road` |\n| wings |"),
}


@pytest.mark.parametrize("problem", PLANTED)
def test_a_planted_fault_is_found(problem: str) -> None:
    sound, broken = PLANTED[problem]
    page = sound_page()
    assert sound in page

    assert problem in problems(page.replace(sound, broken, 1))
