# pure: every branch is tested
"""The language of conditions: a part of SQL, read into a tree of our own and evaluated without eval. Pure.

Who uses it names the facts that its conditions may speak of: recalls those of a dead letter, routes those of a message
on its way.
"""
