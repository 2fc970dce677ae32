"""Where the harness keeps what it fetches, builds and measures on."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "bench"
RESULTS = ROOT / "benchmarks" / "results"
