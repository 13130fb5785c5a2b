"""The console of `kodoctl ui`: pages about topologies on a cluster, served to the user of this machine alone.

Modules know HTTP and HTML. Whatever they show comes from functions of the command (`ConsoleData`), which read the
cluster with the user's own context and rights, and whatever they do is a plan of the command (`ActionMaker`) that the
user has seen and confirmed.
"""
