"""Object storage. See `contract`."""
