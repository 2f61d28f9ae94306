"""The rights of clients and their limits: credentials, SASL, principals, ACLs and quotas.

The rules are pure (`sasl/`, `acls/`, `quotas/`, `principals`); `users`, `acls/store` and `quotas/store` keep
them in the metadata store. Facts about clients live here, never sockets: those are the server's.
"""
