"""The files that dispatch derives from the commit log: consume queues and index files.

``entries`` collects what a part of the log expects of both (protocol/store/expected.py).
``queue_files`` and ``index_files`` read the files. The audit compares the two. Nothing here needs
Spark or a running broker.
"""
