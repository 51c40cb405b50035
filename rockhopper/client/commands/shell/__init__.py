"""What makes a shell comfortable: contexts that are kept, and completion."""
