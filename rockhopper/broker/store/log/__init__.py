"""The commit log: its records, how they are written, and how they are read in sequence."""
