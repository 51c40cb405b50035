"""Recovery after a stop, clean or not: compare the files with the log, and repair them."""
