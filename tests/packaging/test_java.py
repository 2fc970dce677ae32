"""The Java that the tests use is one that Spark runs on, wherever it is."""

from pathlib import Path

from tools.test_tools import java_home, relink


def a_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_goes_before_path_and_path_before_what_was_unpacked(tmp_path: Path) -> None:
    unpacked = a_java(tmp_path / "usr" / "lib" / "jvm" / "java-17-openjdk-amd64", "17.0.15")
    on_path = a_java(tmp_path / "path", "21")
    chosen = a_java(tmp_path / "chosen", "25.0.1")
    path = {"PATH": str(on_path / "bin")}

    assert java_home({"JAVA_HOME": str(chosen), **path}, tmp_path) == chosen
    assert java_home(path, tmp_path) == on_path
    assert java_home({}, tmp_path) == unpacked
    assert java_home({}, tmp_path / "nowhere") is None


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", "11.0.2")
    older = a_java(tmp_path / "older", "1.8.0_392")
    new = a_java(tmp_path / "usr" / "lib" / "jvm" / "java-21-openjdk-arm64", "21.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": str(older / "bin")}

    assert java_home(environment, tmp_path) == new
    assert java_home(environment, tmp_path / "nowhere") is None


def test_what_is_unpacked_finds_its_own_settings(tmp_path: Path) -> None:
    jvm = tmp_path / "usr" / "lib" / "jvm" / "java-17-openjdk-amd64" / "lib"
    jvm.mkdir(parents=True)
    settings = tmp_path / "etc" / "java-17-openjdk" / "jvm-amd64.cfg"
    settings.parent.mkdir(parents=True)
    settings.write_text("-server KNOWN\n")
    (jvm / "jvm.cfg").symlink_to("/etc/java-17-openjdk/jvm-amd64.cfg")
    (jvm / "own.cfg").symlink_to("jvm.cfg")
    (jvm / "elsewhere").symlink_to("/nowhere/at/all")
    relink(tmp_path)

    assert (jvm / "own.cfg").read_text() == "-server KNOWN\n"
    assert (jvm / "elsewhere").readlink() == Path("/nowhere/at/all")
