"""The engine of a set that an operator switches: a file in a directory shared by all replicas.

set_directory.py   the file, its lock, and its two slots
electing.py        `rockhopper ha elect`: designates the replica that may lead
"""
