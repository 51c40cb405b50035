"""Files on disk, whatever their content: mapped, locked, flushed, appended to, replaced."""
