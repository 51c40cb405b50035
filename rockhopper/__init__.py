"""The name that is ours alone wherever we are installed; what others load by itself stands here."""
