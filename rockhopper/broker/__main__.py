"""The entry point of `rockhopper-broker`, also as `python -m rockhopper.broker`."""

import os

from rockhopper.starting import answer_at_once, import_main, pause_collections


def main() -> None:
    """Run the command; imports click only if the answer needs it."""
    if not answer_at_once("rockhopper-broker", os.path.dirname(__file__)):
        pause_collections()
        import_main("rockhopper.broker.cli")()


if __name__ == "__main__":
    main()
