"""The inventory of a cluster: live objects, their policies, and evidence before a delete."""
