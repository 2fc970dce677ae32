"""The page about the simulation names every bug that is planted, and no other."""

import re
from pathlib import Path

from tests.simulation.cluster_bugs import BUGS
from tests.simulation.cluster_life import BLOWS, ClusterLife

PAGE = Path(__file__).parent.parent.parent / "docs" / "operations" / "simulation.md"


def test_the_page_lists_the_planted_bugs() -> None:
    _, _, listed = PAGE.read_text().partition("## Does it find anything?")
    named = re.findall(r"^\| ([a-z][^|]+) \|", listed, re.MULTILINE)

    assert [name for name in named if name != "bug"] == list(BUGS)


def test_bugs_are_looked_for_in_storms_that_there_are() -> None:
    for bug in BUGS.values():
        assert set(bug.blows) <= set(BLOWS)


def test_every_kind_of_blow_has_its_day() -> None:
    met = {blow for seed in range(60) for blow in ClusterLife(seed).luck.blows}

    assert met == set(BLOWS)
