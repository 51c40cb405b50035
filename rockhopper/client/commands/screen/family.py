"""Commands that have subcommands: short and usual names for some of these, in the order given."""

import click

_OTHER_NAMES = {
    "create": "update",
    "list": "ls",
    "show": "describe",
    "status": "describe",
    "delete": "rm",
    "remove": "rm",
}


class Family(click.Group):
    """Lists its commands as they were added, and knows them by their other names as well."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return what is used most first."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name; its own names come before the others."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        for name, other in _OTHER_NAMES.items():
            if other == cmd_name and name in self.commands:
                return self.commands[name]
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their other names beside them."""
        names = {
            name: f"{name}, {_OTHER_NAMES[name]}" if name in _OTHER_NAMES else name
            for name in self.commands
        }
        width = formatter.width - 6 - max(map(len, names.values()), default=0)
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (names[name], command.get_short_help_str(width))
                    for name, command in self.commands.items()
                    if not command.hidden
                ]
            )
