"""The Rockhopper broker."""
