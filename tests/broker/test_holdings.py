"""What a broker holds: its directories know the journal that their logs write through."""

from pathlib import Path

from waystation.node.node import Node
from waystation.node.settings import load


async def test_whoever_cuts_a_log_can_make_its_journal_entries_void(tmp_path: Path) -> None:
    folders = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    options = {"listen": "127.0.0.1:0", "http": "none", "log.dirs": folders}
    node = Node(load([("test", options)]))
    await node.start()
    try:
        holdings = node.broker._holdings
        journals = {one.path: one.journal for one in holdings._directories}

        assert len(journals) == 2
        assert journals == holdings._journals
    finally:
        await node.stop()
