"""``waystation completion``: the script that lets a shell complete our commands."""

import click

EXAMPLE = """
\b
Example:
  waystation completion bash > ~/.local/share/bash-completion/completions/waystation
  waystation completion zsh > "${fpath[1]}/_waystation"
  waystation completion fish > ~/.config/fish/completions/waystation.fish
"""


@click.command(epilog=EXAMPLE)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL."""
    from click.shell_completion import get_completion_class

    from waystation.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None, f"click does not know {shell}"
    click.echo(found(cli, {}, "waystation", "_WAYSTATION_COMPLETE").source())
