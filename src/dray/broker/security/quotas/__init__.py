"""Client quotas: how rates are measured and how long a client waits (`throttle`), and where quotas are kept
(`store`)."""
