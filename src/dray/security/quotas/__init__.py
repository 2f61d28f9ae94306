"""Client quotas: how rates are measured (`rates`), which applies to a client (`limits`), where they are
kept."""
