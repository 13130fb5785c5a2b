"""Commands that plan and compare: plan, drift, show, review. They change no cluster."""
