"""Merge the small files of an archive into large ones."""
