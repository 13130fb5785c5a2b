"""Running a user's handler: on threads, an event loop or in batches, with middleware and the guard against doubled
effects.
"""
