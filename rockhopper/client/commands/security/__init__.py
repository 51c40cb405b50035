"""`rockhopper user`, `rockhopper acl` and `rockhopper auth`: users and their access rules."""
