"""What a broker consists of: its parts in their order, what they keep on disk, what they show."""
