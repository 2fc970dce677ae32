"""The pages keep what they promise: comparisons are complete, links and names lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHOOSING = ROOT / "docs" / "choosing.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
STORAGE_DECISION = ROOT / "docs" / "decisions" / "0001-one-log-and-pure-machines.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

PEERS = ("Kafka", "RabbitMQ", "RocketMQ", "Apache Pulsar", "ActiveMQ", "ZeroMQ")
QUESTIONS = (
    "model",
    "ordering",
    "throughput",
    "latency",
    "persistence",
    "replication",
    "consumer model",
    "use cases",
)
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#]+)(?:#[^)]*)?\)")
_SOURCE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")


def _section(page: str, heading: str) -> str:
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _answers(section: str) -> dict[tuple[str, str], str]:
    """(question, system) -> answer, from a table with a system per column."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        (row[0], system): answer
        for row in rows
        for system, answer in zip(header[1:], row[1:], strict=True)
    }


def test_choosing_answers_every_question_for_every_named_peer() -> None:
    page = CHOOSING.read_text()
    answers = _answers(_section(page, "Logs")) | _answers(_section(page, "Queues and libraries"))

    assert all(answers.values())
    for question in QUESTIONS:
        for system in ("Waystation", *PEERS):
            assert (question, system) in answers


@pytest.mark.parametrize("peer", ["SQS", "SNS", "ZooKeeper", "etcd"])
def test_choosing_mentions_the_peers_named_in_passing(peer: str) -> None:
    assert f"**{peer}**" in _section(CHOOSING.read_text(), "In passing")


def test_the_storage_decision_weighs_sql_nosql_and_files() -> None:
    weighed = _section(STORAGE_DECISION.read_text(), "What was weighed")

    for option in ("SQL database", "NoSQL store", "Files"):
        assert f"| {option} |" in weighed


def test_architecture_has_a_row_for_every_package() -> None:
    layers = _section(ARCHITECTURE.read_text(), "Layers")
    described = re.findall(r"^\| \d+ \| `(\w+)`\*? \|", layers, re.MULTILINE)
    packages = [path.parent.name for path in ROOT.glob("src/waystation/*/__init__.py")]

    assert sorted(described) == sorted(packages)


@pytest.mark.parametrize("heading", ["The life of a produce", "The life of a fetch"])
def test_architecture_follows_a_produce_and_a_fetch_through_files_that_exist(heading: str) -> None:
    named = _SOURCE.findall(_section(ARCHITECTURE.read_text(), heading))

    assert len(named) >= 5
    for path in named:
        assert (ROOT / "src" / "waystation" / path).is_file(), path


def test_every_name_that_the_sketches_map_to_is_defined() -> None:
    section = _section(ARCHITECTURE.read_text(), "The design documents' classes")
    ours = "".join(row.split(" | ")[1] for row in section.splitlines() if row.startswith("| "))
    names = re.findall(r"`(?:\w+\.)?(\w+)(?:\([^`]*\))?`", ours)
    source = "".join(path.read_text() for path in ROOT.glob("src/waystation/**/*.py"))

    assert len(names) > 20
    for name in names:
        assert re.search(rf"(?:def|class) {name}\b|\b{name}: ", source), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), link


def test_everything_that_runs_is_written_in_python() -> None:
    package = ROOT / "src" / "waystation"
    copied_for_users = package / "pipelines" / "project"
    kinds = {
        path.suffix
        for path in package.rglob("*")
        if path.is_file() and not path.is_relative_to(copied_for_users)
    }
    built = {".pyc", ".so", ".c"}  # left by Python and, where there is a compiler, by Cython

    assert kinds - built <= {".py", ".pxd", ".typed"}
