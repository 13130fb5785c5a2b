"""The rollup: latencies and failures of subscriptions in windows of time, and what producers sent."""
