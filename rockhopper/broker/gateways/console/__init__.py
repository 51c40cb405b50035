"""The web console on the operator's port."""
