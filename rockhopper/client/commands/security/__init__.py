"""`rockhopper user` and `rockhopper acl`: who may use a broker, and what for."""
