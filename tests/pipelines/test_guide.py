"""The guide's walk-through and its notebook, executed as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.sql import SparkSession

from waystation.testing.process import BrokerProcess

pytestmark = pytest.mark.heavy(80)

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    walk = (GUIDES / "pipeline.md").read_text().split("## A walk-through")[1].split("\n## ")[0]
    return BLOCK.findall(walk)


def test_the_walk_through_works(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    options = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "broker", options=options).start() as broker:
        monkeypatch.setenv("WAYSTATION_BOOTSTRAP", broker.bootstrap)
        found = blocks()
        assert [kind for kind, _ in found].count("sh") == 2, "the guide lost a step"
        for kind, text in found:
            if kind == "sh":
                subprocess.run(["bash", "-euc", text], check=True, timeout=300)
            else:
                # The session was started elsewhere, and goes by the folder it was started in.
                told = text.replace('"lake/', f'"{tmp_path}/lake/')
                exec(told.replace("localhost:9092", broker.bootstrap), names)
    assert (tmp_path / "lake" / "metrics").is_dir()


def test_the_notebook_runs(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    notebook = nbformat.read(GUIDES / "pipeline.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
