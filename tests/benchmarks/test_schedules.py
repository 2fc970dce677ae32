"""The figures of scheduled messages are about what was read, and know what is missing or early."""

from benchmarks.schedules import _lateness
from benchmarks.scheduling.loads import Lateness


def test_lateness_counts_from_when_each_was_due() -> None:
    found = [(1_000 + n, 1_000 + n + 2, 1_000.0 + n + 5 + (n == 99) * 95) for n in range(100)]
    late = Lateness.of(found, doubled=0)

    assert (late.count, late.earliest, late.p50, late.worst) == (100, 5.0, 5.0, 100.0)
    assert late.p99 == 100.0, "one of a hundred is the hundredth part"
    assert (late.decided_earliest, late.decided_p99) == (2, 2)


def test_what_is_missing_doubled_or_early_fails_the_run() -> None:
    fine = Lateness.of([(10, 11, 12.0), (20, 21, 22.0)], doubled=0)

    assert all(row.reached for row in _lateness("x", fine, 2))
    assert not all(row.reached for row in _lateness("x", fine, 3))
    assert not all(row.reached for row in _lateness("x", fine._replace(doubled=1), 2))
    early = Lateness.of([(10, 9, 12.0), (20, 21, 22.0)], doubled=0)
    assert not all(row.reached for row in _lateness("x", early, 2))
