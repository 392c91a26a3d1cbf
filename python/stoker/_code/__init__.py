"""A step's code as a part of its cache key."""
