"""`python -m rockhopper.client` is the command `rockhopper`."""

from rockhopper.client.cli import main

if __name__ == "__main__":
    main()
