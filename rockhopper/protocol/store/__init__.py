"""The store formats that broker and pipeline share: file layouts, names, records and notes."""
