"""What the table of Spark's reads says of a result."""

import pytest
from benchmarks.spark.__main__ import _table, _verdict
from benchmarks.spark.reads import CEILING, CONNECTOR, OURS


def rounds(ours: float, connector: float | None) -> list[dict[str, float]]:
    """Three rounds with the same ratios on a machine that gets slower."""
    ways = {CEILING: 1.0, OURS: ours} | ({} if connector is None else {CONNECTOR: connector})
    return [{way: 1e6 * rate / slower for way, rate in ways.items()} for slower in (1, 2, 3)]


@pytest.mark.parametrize(
    ("size", "ours", "connector", "passes"),
    [
        ("100B", 0.8, None, True),
        ("100B", 0.79, None, False),
        ("100B", 0.9, 0.9, True),
        ("100B", 0.9, 0.91, False),
        ("1KB", 0.8, 0.9, True),
        ("1KB", 0.79, 0.5, False),
    ],
)
def test_a_read_passes_by_its_ceiling_and_beside_the_connector(
    size: str, ours: float, connector: float | None, passes: bool
) -> None:
    verdict = _verdict(size, rounds(ours, connector))

    assert verdict.endswith(": pass" if passes else ": FALLS SHORT")


def test_the_table_has_a_line_for_every_way_and_the_ratio_of_neighbours() -> None:
    lines = _table({"100B": rounds(0.9, 0.45)}).splitlines()

    assert [line.split()[1] for line in lines[1:]] == ["ceiling", "waystation", "kafka"]
    ours = lines[2].split()
    assert ours[2:6] == ["450,000", "45", "0.90", "2.00"]
