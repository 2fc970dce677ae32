"""systemd is told when a broker is ready, and nobody else is bothered."""

import socket
from pathlib import Path

import pytest

from waystation.node.notify import deaf, notify


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_whoever_wants_to_know_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    name = str(tmp_path / "n") if kind == "path" else f"@waystation-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0"))
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify("READY=1")

        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    notify("READY=1")


def test_children_are_not_the_service() -> None:
    assert deaf({"NOTIFY_SOCKET": "/run/x", "PATH": "/bin"}) == {"PATH": "/bin"}
