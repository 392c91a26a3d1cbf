"""A step's processes: the fork server, one attempt, the ranks of a gang, and what they know of themselves."""
