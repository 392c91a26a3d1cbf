"""A step's processes: the fork server, one attempt, the ranks of a gang, and their context."""
