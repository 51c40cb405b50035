"""The house, measured: figures of the structure of the code, which may never get worse."""
