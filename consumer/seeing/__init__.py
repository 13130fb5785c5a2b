"""What others see of running workers: metrics, health, traces, dashboards. Reads; decides nothing."""
