"""Features for the shell: stored contexts, and completion."""
