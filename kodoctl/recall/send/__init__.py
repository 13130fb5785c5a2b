"""Sending of a recall plan: each message arrives once, however often the command is killed and begun again."""
