"""Difference between this machine's clock and a server's, computed from the `Date` header of an HTTP response, which
has whole seconds. Workers need it for due times, the pipeline because it compares times of the cluster.
"""

from __future__ import annotations


def clock_ahead(wall: int, server_time: int, took: float) -> float:
    """Ms by which this machine's clock is certainly ahead of the server's: negative if certainly behind, 0 if the
    clocks may agree. `wall`: this machine's clock right after the response, ms since the epoch; `server_time`: time of
    the `Date` header, ms since the epoch; `took`: seconds from request to response.
    """
    most = wall - server_time
    least = most - 1000 * took - 1000  # its second may have been nearly over
    return max(0.0, least) + min(0.0, most)
