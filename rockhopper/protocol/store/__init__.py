"""What broker and pipeline both read of a store: its files' layouts, names, records and notes."""
