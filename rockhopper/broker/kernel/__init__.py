"""The kernel: what the broker needs to append, read, notify and commit, and its administration."""
