"""What a step's code is to its cache key."""
