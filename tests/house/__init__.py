"""Measurements of the structure of the code, which must not get worse."""
