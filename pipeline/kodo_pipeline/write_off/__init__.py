"""Write-offs: losses and doubts that a person accepts by name; planned, reviewed and booked."""
