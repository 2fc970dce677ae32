"""Processes in the background are found again, and never mistaken for others."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from waystation.node.background import Background, NotStartedError, birth_of

SLEEPING = [sys.executable, "-c", "print('awake', flush=True); import time; time.sleep(60)"]


def _start(folder: Path) -> Background:
    process = Background(folder, "sleeper")
    begins_at = process.start(SLEEPING)
    process.wait_until(lambda: "awake" in process.said(begins_at), 30, begins_at)
    return process


def test_what_runs_is_found_by_another_command_and_stopped(tmp_path: Path) -> None:
    pid = _start(tmp_path).pid

    found = Background(tmp_path, "sleeper")
    assert found.pid == pid
    assert found.signal(signal.SIGKILL)
    assert found.ended(10)
    assert found.pid is None
    assert not found.signal(signal.SIGKILL)


@pytest.mark.parametrize("changed", ["boot", "moment"])
def test_a_number_that_somebody_else_has_now_is_not_ours(tmp_path: Path, changed: str) -> None:
    """After the machine was restarted, or once numbers begin anew."""
    birth = birth_of(os.getpid())
    assert birth is not None
    boot, moment = birth.split("/")
    other = f"another/{moment}" if changed == "boot" else f"{boot}/1"
    (tmp_path / "sleeper.pid").write_text(json.dumps({"pid": os.getpid(), "birth": other}))

    assert Background(tmp_path, "sleeper").pid is None
    assert not Background(tmp_path, "sleeper").signal(signal.SIGKILL)


def test_one_that_ends_at_once_says_why(tmp_path: Path) -> None:
    process = Background(tmp_path, "sleeper")
    (tmp_path / "sleeper.log").write_text("what it said in its last life\n")
    begins_at = process.start([sys.executable, "-c", "import sys; sys.exit('no disk today')"])

    with pytest.raises(NotStartedError, match=r"^sleeper has ended: no disk today$"):
        process.wait_until(lambda: False, 30, begins_at)


def test_a_damaged_file_tells_of_nobody(tmp_path: Path) -> None:
    for text in ("", "17", "{}", '{"pid": "x", "birth": 1}'):
        (tmp_path / "sleeper.pid").write_text(text)

        assert Background(tmp_path, "sleeper").pid is None


def test_whoever_starts_it_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    """Whatever runs afterwards is told of by the file: nothing is left that nobody can stop."""
    script = (
        "import sys; from pathlib import Path; from waystation.node.background import Background\n"
        f"Background(Path({str(tmp_path)!r}), 'sleeper').start({SLEEPING!r})\n"
    )
    for delay_ms in range(0, 60, 12):
        starting = subprocess.Popen([sys.executable, "-c", script])
        while not (tmp_path / "sleeper.log").exists():
            assert starting.poll() in (None, 0)
        time.sleep(delay_ms / 1_000)
        starting.kill()
        starting.wait()
        process = Background(tmp_path, "sleeper")
        ends_at = time.monotonic() + 10
        while left := _running("sleep(60)", tmp_path):
            assert time.monotonic() < ends_at, f"nothing tells of {left}"
            process.signal(signal.SIGKILL)
            time.sleep(0.05)

        process.log.unlink()


def _running(what: str, folder: Path) -> list[str]:
    """Processes of this test, by where their output goes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            target = (process / "fd" / "1").readlink()
            if target == folder / "sleeper.log" and what in (process / "cmdline").read_text():
                found.append(process.name)
        except OSError:
            continue
    return found
