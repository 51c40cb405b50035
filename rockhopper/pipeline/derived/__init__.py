"""The files that dispatch derives from the commit log: consume queues and index files.

``entries`` computes the expected contents of both from a part of the log. ``queue_files`` and
``index_files`` read and write the files. Auditing compares expected and actual contents; rebuilding
writes the expected contents. Neither needs Spark or a running broker here.
"""
