"""Queues side by side: medians, ratios within rounds, and what is required of each row."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.queues.rows import KAFKA, RABBITMQ, WAYSTATION
from benchmarks.report.ratios import Comparison, Run, compare
from benchmarks.report.requirements import QUEUES, Requirement
from benchmarks.report.table import align, number

_UNITS = {
    "messages_per_s": "acknowledged/s",
    "read_per_s": "read by the group/s",
    "cpu_ms_per_mb": "broker CPU ms/MB",
    "client_cpu_ms_per_mb": "client CPU ms/MB",
    "peak_rss_mb": "MB peak",
}
_HEADER = (
    *("row", "metric", "waystation", "rabbitmq", "kafka", "required", "verdict"),
    *("of rabbitmq", "of kafka"),
)


def render(rounds: Sequence[Run]) -> str:
    """The table and its summary."""
    beside = {peer: compare(rounds, WAYSTATION, peer) for peer in (RABBITMQ, KAFKA)}
    # Both name the same rows and metrics, in one order.
    pairs = list(zip(beside[RABBITMQ], beside[KAFKA], strict=True))
    rows = [_cells(*pair) for pair in pairs if pair[0].metric in _UNITS]
    return "\n".join(
        [
            f"{len(rounds)} rounds; medians; ratios within a round, then their median",
            "disk: synced before it is confirmed, as RabbitMQ's quorum queues are; memory: as "
            "Kafka, which never syncs",
            "",
            align([_HEADER, *rows]),
            "",
            summary(rounds),
        ]
    )


def summary(rounds: Sequence[Run]) -> str:
    """How many requirements are met, and each that is not, by name."""
    verdicts = [
        (comparison, requirement, requirement.met_by(comparison), peer)
        for peer, requirement in QUEUES
        for comparison in compare(rounds, WAYSTATION, peer)
        if requirement.covers(comparison)
    ]
    missed = [(c, r, p) for c, r, met, p in verdicts if met is False]
    lines = [
        f"{sum(met is True for *_, met, _ in verdicts)} requirements met, {len(missed)} fall "
        f"short, {sum(met is None for *_, met, _ in verdicts)} not measurable here"
    ]
    for comparison, requirement, peer in missed:
        value = comparison.ratio if requirement.of == "ratio" else comparison.our_median
        lines.append(
            f"  falls short: {comparison.row}: {number(value)}, {_text(peer, requirement)}"
        )
    return "\n".join(lines)


def _cells(rabbitmq: Comparison, kafka: Comparison) -> tuple[str, ...]:
    owed = [
        (peer, requirement, requirement.met_by(comparison))
        for peer, requirement in QUEUES
        for comparison in [rabbitmq if peer == RABBITMQ else kafka]
        if requirement.covers(comparison)
    ]
    return (
        rabbitmq.row,
        _UNITS[rabbitmq.metric],
        number(rabbitmq.our_median),
        number(rabbitmq.their_median),
        number(kafka.their_median),
        ", ".join(_text(peer, requirement) for peer, requirement, _ in owed),
        _verdict({met for *_, met in owed}),
        _ratio(rabbitmq),
        _ratio(kafka),
    )


def _text(peer: str, requirement: Requirement) -> str:
    of = f" of {peer}" if requirement.of == "ratio" else ""
    return f"{requirement.text}{of}"


def _ratio(comparison: Comparison) -> str:
    if comparison.ratio is None or comparison.spread is None:
        return "-"
    lowest, highest = comparison.spread
    return f"{comparison.ratio:.2f} ({lowest:.2f}-{highest:.2f})"


def _verdict(verdicts: set[bool | None]) -> str:
    if False in verdicts:
        return "FALLS SHORT"
    if not verdicts:
        return ""
    return "not measured" if None in verdicts else "pass"
