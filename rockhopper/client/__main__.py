"""Runs the command `rockhopper` as `python -m rockhopper.client`."""

from rockhopper.client.cli import main

if __name__ == "__main__":
    main()
