"""Client libraries that Python does not have: each sends the letters and reads them back."""

import json
import re
import shutil

from benchmarks.peers import java

from tests.compat import letters
from tests.compat.target import CACHE, HERE, Target, fetch, kafka_classpath, need, run


def kafkajs(target: Target) -> str:
    """kafkajs, which reads in groups only."""
    need("npm", "apt install nodejs npm")
    home = CACHE / "kafkajs"
    shutil.copytree(HERE / "kafkajs", home, dirs_exist_ok=True)
    fetch("the npm registry", ["npm", "install", "--no-package-lock"], home)
    command = ["node", str(home / "letters.js"), *_arguments(target, "kafkajs")]
    letters.check(target.topic("kafkajs"), run(command).splitlines())
    manifest = json.loads((HERE / "kafkajs" / "package.json").read_text())
    return str(manifest["dependencies"]["kafkajs"])


def java_client(target: Target) -> str:
    """Kafka's own client, with the Admin calls an application makes."""
    program = str(HERE / "java" / "Letters.java")
    command = ["java", "-Xmx512M", "-cp", kafka_classpath(), program]
    letters.check(target.topic("java"), run([*command, *_arguments(target, "java")]).splitlines())
    return java.KAFKA_VERSION


def franz_go(target: Target) -> str:
    """twmb/franz-go."""
    return _go(target, "franz", "github.com/twmb/franz-go")


def sarama(target: Target) -> str:
    """IBM/sarama."""
    return _go(target, "sarama", "github.com/IBM/sarama")


def _go(target: Target, name: str, module: str) -> str:
    need("go", "https://go.dev/dl")
    program = CACHE / "go" / name
    fetch("the Go module proxy", ["go", "build", "-o", str(program), f"./{name}"], HERE / "go")
    letters.check(target.topic(name), run([str(program), *_arguments(target, name)]).splitlines())
    required = re.search(rf"{re.escape(module)} v(\S+)", (HERE / "go" / "go.mod").read_text())
    assert required, f"go.mod does not require {module}"
    return required[1]


def _arguments(target: Target, name: str) -> list[str]:
    path = target.scratch / "letters.jsonl"
    letters.write_letters(path)
    return [target.bootstrap, target.topic(name), str(path)]
