"""Types of the JSON documents that commands write and views draw. Keys are the published ones, moments ms since the
epoch.
"""
