"""``waystation serve``: run a broker until it is told to stop."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from waystation.node.settings import NodeSettings

EXAMPLE = """
\b
Example:
  waystation serve --data-dir ./data --listen 127.0.0.1:9092 \\
      --set retention.ms=86400000 --set num.partitions=3
"""


@click.command(epilog=EXAMPLE)
@click.option("--config", type=click.Path(path_type=Path), help="A TOML file of options.")
@click.option("--node-id", type=int, help="This broker's number.  [default: 1]")
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    help="Where logs are kept; give it again for more directories.  [default: ./data]",
)
@click.option("--listen", help="HOST:PORT of the Kafka protocol.  [default: 127.0.0.1:9092]")
@click.option("--advertise", help="HOST:PORT that clients are told, if another.")
@click.option("--http", help="HOST:PORT of HTTP, or none.  [default: 127.0.0.1:8090]")
@click.option(
    "--store", help="sqlite, etcd://HOST:PORT,... or zookeeper://HOST:PORT,...  [default: sqlite]"
)
@click.option(
    "--profile",
    type=click.Choice(["balanced", "latency", "throughput"]),
    help="What the broker is tuned for; options and topics that say otherwise win.  "
    "[default: balanced]",
)
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="Any option, by name.")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    help="Brokers with consecutive ids and ports, one per core.  [default: 1]",
)
@click.option("--insecure", is_flag=True, help="Listen beyond loopback without authentication.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--log-format", type=click.Choice(["auto", "console", "json"]))
@click.option("--options", "show_options", is_flag=True, help="List every option and exit.")
def serve(
    config: Path | None,
    node_id: int | None,
    data_dirs: tuple[str, ...],
    listen: str | None,
    advertise: str | None,
    http: str | None,
    store: str | None,
    profile: str | None,
    pairs: tuple[str, ...],
    processes: int,
    insecure: bool,
    log_level: str | None,
    log_format: str | None,
    show_options: bool,
) -> None:
    """Run a broker: the Kafka protocol on one port, health and metrics on another.

    Options come from --config, then the environment (WAYSTATION_<NAME>), then the command
    line; later ones win. SIGTERM is a clean shutdown.

    With --processes, several brokers run as children of this one, each with the next id, ports
    and a sub-directory of its own; they need a --store that they can share.
    """
    from waystation.model.errors import InvalidSettingsError
    from waystation.node.settings import from_environment, from_file, load
    from waystation.telemetry.logs import configure

    if show_options:
        _show_options()
        return
    flags = {
        "node.id": None if node_id is None else str(node_id),
        "log.dirs": ",".join(data_dirs) or None,
        "listen": listen,
        "advertise": advertise,
        "http": http,
        "store": store,
        "profile": profile,
        "insecure": "true" if insecure else None,
    }
    given = {name: text for name, text in flags.items() if text is not None}
    configure(level=log_level or "info", form=log_format or "auto")  # type: ignore[arg-type]
    try:
        sources = [("environment", from_environment(os.environ))]
        if config is not None:
            sources.insert(0, (str(config), from_file(config)))
        settings = load([*sources, ("--set", _pairs(pairs)), ("command line", given)])
        if processes > 1:
            from waystation.node.processes import check

            check(settings.addresses, processes)
    except InvalidSettingsError as error:
        for problem in error.problems:
            click.echo(f"waystation: {problem}", err=True)
        click.echo("Remedy: `waystation serve --options` lists every option.", err=True)
        sys.exit(2)

    if processes > 1:
        shared = _shared_flags(config, store, profile, pairs, insecure, log_level, log_format)
        sys.exit(_run_several(settings, processes, shared))

    from waystation.node.run import run

    sys.exit(run(settings, announce=click.echo, complain=_complain))


def _complain(line: str) -> None:
    click.echo(f"waystation: {line}", err=True)


def _run_several(settings: "NodeSettings", processes: int, flags: list[str]) -> int:
    from waystation.node.processes import run

    command = [sys.executable, "-m", "waystation.cli.main", "serve", *flags]
    return run(command, settings, processes, announce=click.echo, complain=_complain)


def _shared_flags(
    config: Path | None,
    store: str | None,
    profile: str | None,
    pairs: tuple[str, ...],
    insecure: bool,
    log_level: str | None,
    log_format: str | None,
) -> list[str]:
    """What was given and is the same for all processes."""
    named = {
        "--config": None if config is None else str(config),
        "--store": store,
        "--profile": profile,
        "--log-level": log_level,
        "--log-format": log_format,
    }
    flags = [word for name, text in named.items() if text is not None for word in (name, text)]
    flags += [word for pair in pairs for word in ("--set", pair)]
    return [*flags, "--insecure"] if insecure else flags


def _pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--set {pair}: must be NAME=VALUE")
        found[name.strip()] = value
    return found


def _show_options() -> None:
    from waystation.node.settings import all_options

    for one in all_options():
        names = one.name if one.kafka in (None, one.name) else f"{one.name} ({one.kafka})"
        live = ", live" if one.live else ""
        by_profile = "".join(
            f", {profile}: {one.format(value)}" for profile, value in one.profiles.items()
        )
        click.echo(f"{names} = {one.format(one.default)}{by_profile}{live}\n    {one.doc}")
