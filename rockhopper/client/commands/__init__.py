"""The subcommands of `rockhopper`, one module for each family."""
