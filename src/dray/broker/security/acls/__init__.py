"""ACLs: what they are (`model`), what they allow (`decision`), and where they are kept (`store`)."""
