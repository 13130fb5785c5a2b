"""The rollup: latencies and failures of subscriptions, and messages that producers sent, in windows of time."""
