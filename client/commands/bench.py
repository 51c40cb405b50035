"""`rockhopper bench`: what this client reaches against the brokers it finds."""

import click


@click.command()
def bench() -> None:
    """Measure sends and pulls from here."""
