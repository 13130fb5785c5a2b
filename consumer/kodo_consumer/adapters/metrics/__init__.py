"""What others see of running workers: metrics, health, dashboards. Reads; decides nothing."""
