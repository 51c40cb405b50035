"""The archive as an Apache Iceberg table: each run is one commit that includes its position."""
