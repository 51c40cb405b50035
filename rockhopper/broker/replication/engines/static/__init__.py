"""The engine of a set that an operator switches: a file in a directory that all replicas share.

set_directory.py   the file, its lock, and its two slots
electing.py        `rockhopper ha elect`: who may lead
"""
