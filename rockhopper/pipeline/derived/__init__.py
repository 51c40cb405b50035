"""What dispatch makes of the commit log: consume queues and index files.

``entries`` says what the records of a piece of the log must have in both, ``queue_files`` and
``index_files`` read and write them. Auditing compares the two, rebuilding writes the one into the
other. Knows neither Spark nor a running broker.
"""
