"""Command groups with aliases for some subcommands, listed in the order of definition."""

import click

_OTHER_NAMES = {
    "create": "update",
    "list": "ls",
    "show": "describe",
    "status": "describe",
    "delete": "rm",
    "remove": "rm",
}


class AliasedGroup(click.Group):
    """Lists its commands in the order they were added, and accepts their aliases."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order they were added: most used first."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, else the one with this alias."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        for name, other in _OTHER_NAMES.items():
            if other == cmd_name and name in self.commands:
                return self.commands[name]
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their aliases."""
        names = {
            name: f"{name}, {_OTHER_NAMES[name]}" if name in _OTHER_NAMES else name
            for name in self.list_commands(ctx)
        }
        width = formatter.width - 6 - max(map(len, names.values()), default=0)
        commands = {name: self.get_command(ctx, name) for name in names}
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (names[name], command.get_short_help_str(width))
                    for name, command in commands.items()
                    if command is not None and not command.hidden
                ]
            )
