"""Auditing: what is wrong with a store, and with an archive of it, and where."""
