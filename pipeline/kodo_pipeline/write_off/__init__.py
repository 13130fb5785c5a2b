"""Write-offs: known losses and doubts, chosen into a plan and booked, each by name."""
