"""The store's tools: check, show, dump, rebuild, repair, back up and restore a store directory."""
