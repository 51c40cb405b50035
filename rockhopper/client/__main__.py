"""The entry point of the command `rockhopper`, also as `python -m rockhopper.client`."""

import os

from rockhopper.starting import answer_at_once, import_main, pause_collections


def main() -> None:
    """Run the command; imports click only if the answer needs it."""
    if not answer_at_once("rockhopper", os.path.dirname(__file__)):
        pause_collections()
        import_main("rockhopper.client.cli")()


if __name__ == "__main__":
    main()
