"""Users, permissions, and the reasons of refusals."""
