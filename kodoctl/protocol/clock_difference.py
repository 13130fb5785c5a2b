"""Difference between this machine's clock and a server's, from the `Date` header of one HTTP response, which has whole
seconds. Workers need it for due times, and the pipeline because it judges by the cluster's clock.
"""

from __future__ import annotations


def clock_ahead(wall: int, server_time: int, took: float) -> float:
    """Ms by which this machine's clock is certainly ahead of the server's; negative: certainly behind; 0: the two may
    agree. `wall`: this machine's clock right after the response, `server_time`: the server's in the response, both ms
    since the epoch; `took`: seconds from request to response.
    """
    most = wall - server_time
    least = most - 1000 * took - 1000  # its second may have been nearly over
    return max(0.0, least) + min(0.0, most)
