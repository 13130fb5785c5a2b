"""Producers' numbers: given, marked, and watched for gaps."""
