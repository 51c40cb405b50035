"""Tools for store directories: check, show, dump, rebuild, repair, back up and restore."""
