"""The kernel: what is needed to append, read, notify and commit, and to administer that."""
