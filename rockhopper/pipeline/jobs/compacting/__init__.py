"""Compacting: the small files of an archive become large ones."""
