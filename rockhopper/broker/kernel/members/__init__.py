"""Connected clients: consumers and producers by group, their notifications and queue locks."""
