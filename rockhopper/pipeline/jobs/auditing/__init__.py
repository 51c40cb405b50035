"""Find and locate faults in a store, and in an archive of it."""
