"""The rollup: latencies and failures of subscriptions, and messages that producers sent, counted in windows of time."""
