"""Client libraries that Python does not have: each sends the letters and reads them back.

And each shares topics in groups, by all of its assignors, and writes transactions.
"""

import json
import re
import shutil

from benchmarks.peers import java

from tests.compat import letters
from tests.compat.groups import check_groups
from tests.compat.target import CACHE, HERE, Target, fetch, kafka_classpath, need, run
from tests.compat.transactions import check_transactions

_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
_SERVER_SIDE = "server-side"
FRANZ_GO, SARAMA = "github.com/twmb/franz-go", "github.com/IBM/sarama"


def kafkajs(target: Target) -> str:
    """kafkajs, which reads in groups only."""
    command = [*kafkajs_program("letters.js"), *_arguments(target, "kafkajs")]
    letters.check(target.topic("kafkajs"), run(command).splitlines())
    return kafkajs_version()


def kafkajs_groups(target: Target) -> str:
    """kafkajs in groups, by the one assignor that it has."""
    check_groups(target, "kafkajs", kafkajs_program("groups.js"), ["roundrobin"])
    return kafkajs_version()


def kafkajs_transactions(target: Target) -> str:
    """kafkajs in transactions."""
    check_transactions(target, "kafkajs", kafkajs_program("transactions.js"))
    return kafkajs_version()


def java_client(target: Target) -> str:
    """Kafka's own client, with the Admin calls an application makes."""
    command = [*java_program("Letters.java"), *_arguments(target, "java")]
    letters.check(target.topic("java"), run(command).splitlines())
    return java.KAFKA_VERSION


def java_groups(target: Target) -> str:
    """Kafka's own client in groups."""
    check_groups(target, "java", java_program("Groups.java"), [*_ASSIGNORS, _SERVER_SIDE])
    return java.KAFKA_VERSION


def java_transactions(target: Target) -> str:
    """Kafka's own client in transactions: the one that uses KIP-890's flow."""
    run([*java_program("Transactions.java"), target.bootstrap, target.topic("java-transactions")])
    return java.KAFKA_VERSION


def franz_go(target: Target) -> str:
    """twmb/franz-go."""
    return _go_letters(target, "franz", FRANZ_GO)


def franz_go_groups(target: Target) -> str:
    """twmb/franz-go in groups."""
    check_groups(target, "franz", [go_program("franzgroups")], [*_ASSIGNORS, _SERVER_SIDE])
    return go_version(FRANZ_GO)


def franz_go_transactions(target: Target) -> str:
    """twmb/franz-go in transactions, in KIP-890's flow."""
    check_transactions(target, "franz", [go_program("franztransactions")])
    return go_version(FRANZ_GO)


def sarama(target: Target) -> str:
    """IBM/sarama."""
    return _go_letters(target, "sarama", SARAMA)


def sarama_groups(target: Target) -> str:
    """IBM/sarama in groups."""
    check_groups(target, "sarama", [go_program("saramagroups")], _ASSIGNORS)
    return go_version(SARAMA)


def sarama_transactions(target: Target) -> str:
    """IBM/sarama in transactions."""
    check_transactions(target, "sarama", [go_program("saramatransactions")])
    return go_version(SARAMA)


def kafkajs_program(program: str) -> list[str]:
    """What runs one of the programs for kafkajs."""
    need("npm", "apt install nodejs npm")
    home = CACHE / "kafkajs"
    shutil.copytree(HERE / "kafkajs", home, dirs_exist_ok=True)
    fetch("the npm registry", ["npm", "install", "--no-package-lock"], home)
    return ["node", str(home / program)]


def kafkajs_version() -> str:
    """Which is installed."""
    manifest = json.loads((HERE / "kafkajs" / "package.json").read_text())
    return str(manifest["dependencies"]["kafkajs"])


def java_program(program: str) -> list[str]:
    """What runs one of the programs for Kafka's own client."""
    return ["java", "-Xmx512M", "-cp", kafka_classpath(), str(HERE / "java" / program)]


def _go_letters(target: Target, name: str, module: str) -> str:
    command = [go_program(name), *_arguments(target, name)]
    letters.check(target.topic(name), run(command).splitlines())
    return go_version(module)


def go_program(name: str) -> str:
    """One of the programs in Go, built."""
    need("go", "https://go.dev/dl")
    program = str(CACHE / "go" / name)
    fetch("the Go module proxy", ["go", "build", "-o", program, f"./{name}"], HERE / "go")
    return program


def go_version(module: str) -> str:
    """Which version of a module is used."""
    required = re.search(rf"{re.escape(module)} v(\S+)", (HERE / "go" / "go.mod").read_text())
    assert required, f"go.mod does not require {module}"
    return required[1]


def _arguments(target: Target, name: str) -> list[str]:
    path = target.scratch / "letters.jsonl"
    letters.write_letters(path)
    return [target.bootstrap, target.topic(name), str(path)]
