"""Files on the disk, whatever is in them: mapped, locked, flushed, appended to, replaced."""
