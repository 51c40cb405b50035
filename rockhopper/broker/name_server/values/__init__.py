"""What operators keep at a name service, and answers that are kept by it."""
