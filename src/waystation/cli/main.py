"""The entry point: finds the command, and turns what goes wrong into one line and an exit code.

Exit codes: 0 success, 1 something failed (one line on standard error names the culprit and the
remedy), 2 the command line makes no sense, 130 interrupted, 141 the reader of the output left.

Commands are imported when they are used: ``waystation --help`` and ``serve`` pay for nothing
but themselves.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NoReturn

import click

from waystation.version import VERSION

__all__ = ["cli", "main"]

EXAMPLE = """
\b
Example:
  waystation serve &
  waystation topic create orders --partitions 3
  echo 'hello' | waystation produce orders
  waystation consume orders --from-beginning
"""

COMMANDS = {
    "serve": "Run a broker.",
    "topic": "Create, list, describe, alter, truncate and delete topics.",
    "produce": "Send messages from standard input, a file or the command line.",
    "consume": "Print messages.",
    "find": "Print the messages of one key.",
    "group": "List, describe, reset and delete consumer groups.",
    "schedule": "Send messages for later; list, cancel and re-time them.",
    "view": "Create, list, describe and delete views: filtered topics.",
    "queue": "Send, receive and acknowledge messages one by one.",
    "webhook": "Push messages of a topic to a URL.",
    "txn": "List, describe and end transactions.",
    "cluster": "Start, watch, move and rescue several brokers.",
    "sink": "List, show and resolve what Spark writes into topics.",
    "pipeline": "Run Spark jobs over topics: tables, metrics, reports.",
    "verify": "Check by experiment that a cluster loses and repeats nothing.",
    "doctor": "Check this machine and say the remedy for what is wrong.",
    "completion": "Print the completion script of a shell.",
}
"""Each is the attribute of that name in the module of that name, with its line in --help."""

_INTERRUPTED, _READER_LEFT = 130, 141
_COMPLETING = "_WAYSTATION_COMPLETE"


class LazyGroup(click.Group):
    """A group whose commands are imported when they are needed."""

    lines: Mapping[str, str] = COMMANDS

    def find(self, name: str) -> object:
        """Import one of the commands."""
        return getattr(import_module(f"waystation.cli.{name}"), name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table: as one would use them."""
        return list(self.lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; ``None`` if there is no such."""
        if cmd_name not in self.lines:
            return None
        found = self.find(cmd_name)
        assert isinstance(found, click.Command), f"{found!r} is no command"
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.lines.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a misspelt one is answered with its nearest neighbour."""
        name = args[0]
        if name not in self.lines and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, self.lines, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"There is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup, epilog=EXAMPLE, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(VERSION, message="waystation %(version)s")
def cli() -> None:
    """A distributed message queue that speaks the Kafka protocol."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    sys.exit(_run(args))


def _run(args: Sequence[str] | None) -> int:
    if _COMPLETING in os.environ:
        cli.main(prog_name="waystation")  # answers the shell and exits
    try:
        # Not by cli.main(): it would print a line for Ctrl-C, and has its own idea of pipes.
        with cli.make_context("waystation", list(sys.argv[1:] if args is None else args)) as ctx:
            cli.invoke(ctx)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        # Whatever is still buffered has nowhere to go; Python would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _READER_LEFT
    except Exception as error:  # the outermost frame of the process
        if (line := _explained(error)) is None:
            raise
        click.echo(f"waystation: {line}", err=True)
        return 1
    return 0


def _explained(error: Exception) -> str | None:
    """One line for what a user can mend; ``None`` for what only we can."""
    from waystation.model.errors import WaystationError

    if isinstance(error, WaystationError):
        return str(error)
    if isinstance(error, OSError):
        culprit = f"{error.filename}: " if error.filename else ""
        return f"{culprit}{error.strerror or error}"
    return None


if __name__ == "__main__":
    main()
