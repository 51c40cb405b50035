"""The subcommands of `rockhopper`, one module for each group of commands."""
