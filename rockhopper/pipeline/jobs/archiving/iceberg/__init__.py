"""The archive as a table of Apache Iceberg's: each run is one commit, with its position in it."""
