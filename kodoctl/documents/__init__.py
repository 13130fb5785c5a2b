"""Types of the JSON documents that commands write and that views draw. Keys are the published ones; times are ms."""
