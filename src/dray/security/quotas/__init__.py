"""Client quotas: how rates are measured (`rates`), which applies to a client (`limits`), how long a client
waits (`throttle`), and where they are kept (`store`)."""
