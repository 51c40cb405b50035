"""Forward clients to another broker over their existing connections."""
