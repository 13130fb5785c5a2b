"""A stored message as conditions, plans and views see it: its headers, its payload and its JSON form."""
