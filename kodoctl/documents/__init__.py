"""Types of the JSON documents that commands write and views draw. Their keys are public. Times are ms since the epoch."""
