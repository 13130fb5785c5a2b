"""Connections to a cluster: addresses, credentials, tokens, TLS, options of the client, and waits for
a busy cluster.
"""
