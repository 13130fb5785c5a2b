# pure: every branch is tested
"""The language of conditions: a part of SQL, parsed into a tree of our own and evaluated without `eval`. Pure.

Each use has its own `Vocabulary` of facts: a recall that of a dead letter, a route that of a message that is being sent
or moved.
"""
