"""The servers that the tests start are unpacked, never installed: that would start them."""

from pathlib import Path

from tools.test_tools import PEERS, SERVERS, packages_of, rabbitmq, zookeeper_jars


def test_a_zookeeper_is_there_with_all_its_jars_or_not_at_all(tmp_path: Path) -> None:
    found = zookeeper_jars()
    assert found
    folder = tmp_path / "usr" / "share" / "java"
    folder.mkdir(parents=True)
    for jar in found[1:]:
        (folder / jar.name).touch()

    assert zookeeper_jars(tmp_path) in (None, found)

    (folder / found[0].name).touch()

    assert zookeeper_jars(tmp_path) is not None


def test_a_server_needs_all_its_packages_and_a_program_one_of_them() -> None:
    assert packages_of(["etcd", "zookeeper"]) == [*SERVERS["etcd"], *SERVERS["zookeeper"]]
    assert packages_of(["kcat", "etcd"]) == ["kcat", *SERVERS["etcd"]]
    assert packages_of(["rabbitmq"]) == list(PEERS["rabbitmq"])


def test_a_rabbitmq_is_there_with_its_erlang_or_not_at_all(tmp_path: Path) -> None:
    installed = rabbitmq(tmp_path)
    server = tmp_path / "usr" / "lib" / "rabbitmq" / "lib" / "rabbitmq_server-3.10.8"
    server.mkdir(parents=True)

    assert rabbitmq(tmp_path) == installed

    erlang = tmp_path / "usr" / "lib" / "erlang"
    for part in ("erts-13.1.5", "lib/mnesia-4.21.3"):
        (erlang / part).mkdir(parents=True)

    assert rabbitmq(tmp_path) == (installed or (server, erlang))
