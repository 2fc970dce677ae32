"""Runs the tests with their full counts and durations, and writes a dated report.

The same code as ``make test``, with bigger numbers: each test asks ``tests/support/soak.py`` how
much to do.  Names of tests may follow, as for pytest: ``make soak ARGS=tests/chaos``.
"""

import datetime as dt
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
REPORTS = ROOT / "docs" / "reports"


def soaked() -> list[str]:
    """The files whose tests grow when soaking; the rest would only repeat itself."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if "support.soak" in file.read_text()]


def main(arguments: list[str]) -> int:
    started, clock = dt.datetime.now(dt.UTC), time.monotonic()
    command = [sys.executable, "-m", "pytest", "-v", "--timeout", "7200", "--durations", "15"]
    command += ["-rA", "--no-header", "-p", "no:cacheprovider", *(arguments or soaked())]
    print(" ".join(command), flush=True)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "WAYSTATION_SOAK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        printed = []
        for line in running.stdout:
            sys.stdout.write(line)
            printed.append(line)
    report(started, time.monotonic() - clock, command, printed, running.returncode)
    return running.returncode


def report(
    started: dt.datetime, took_s: float, command: list[str], printed: list[str], code: int
) -> None:
    """One page per run: what ran where, how it ended, and the figures that tests printed."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    path = REPORTS / f"{started:%Y-%m-%d-%H%M}-soak.md"
    figures = [line.strip() for line in printed if line.startswith("figure: ")]
    outcomes = _by_test(line for line in printed if line.startswith(("PASSED ", "FAILED ")))
    lines = [
        f"# Soak of {started:%Y-%m-%d %H:%M} UTC: {'passed' if code == 0 else 'FAILED'}",
        "",
        f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, {took_s / 60:.0f} minutes.",
        "",
        f'`make soak ARGS="{" ".join(command[command.index("no:cacheprovider") + 1 :])}"`',
        "",
        "## Figures",
        "",
        *(f"- {line.removeprefix('figure: ')}" for line in figures),
        "",
        "## Outcomes",
        "",
        *(f"- {line}" for line in outcomes),
        "",
        printed[-1].strip() if printed else "",
        "",
    ]
    path.write_text("\n".join(lines))
    print(f"report: {path.relative_to(ROOT)}")


def _by_test(lines: Iterable[str]) -> list[str]:
    """One line per test; of those with many parameters, how many passed, and each that failed."""
    passed: Counter[str] = Counter()
    failed = []
    for line in lines:
        outcome, name = line.split(maxsplit=1)
        if outcome == "PASSED":
            passed[name.strip().partition("[")[0]] += 1
        else:
            failed.append(line.strip())
    return failed + [
        f"PASSED {name}" + (f" ({times} times)" if times > 1 else "")
        for name, times in passed.items()
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
