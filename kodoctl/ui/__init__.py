"""The console of `kodoctl ui`: pages about topologies on a cluster, served to the user of this machine alone.

The modules of this package know HTTP and HTML, and no cluster. All that they show comes from functions of the command
(`ConsoleData`), which read the cluster with the user's own context and rights; all that they do is a plan of the
command (`ActionMaker`) that the user has seen and confirmed.
"""
