"""`python -m client` is the command `rockhopper`."""

from client.cli import main

if __name__ == "__main__":
    main()
