# pure: every branch is tested
"""Use of an object where it cannot work: one rule for all objects of applications, reported at once, before anything is
done.

Threads and connections do not survive a fork, an object that was closed has none any more, and a caller that waits for
their answer would wait for ever.
"""

from __future__ import annotations

import os

from kodoctl.errors import UsageError, error


def misuse_error(detail: str) -> UsageError:
    """Returns the error (K731) to raise for a call that cannot work, whatever its arguments are."""
    return UsageError(error("K731", "used where it cannot work", detail))


class ObjectUse:
    """Rule for the use of an object: only in the process that made the object, and only until the object is closed.
    `name`: the object, for people. `anywhere`: the object has no threads and no connections, so a forked process may
    use it, too. `is_closed`: the object is closed, in this process.

    Any thread may call it. It has no lock, because a process may be forked while another thread has the lock: two calls
    of `end` at the same moment may both return True.
    """

    __slots__ = ("_name", "_process", "is_closed")

    def __init__(self, name: str, *, anywhere: bool = False) -> None:
        self._name, self._process = name, None if anywhere else os.getpid()
        self.is_closed = False

    @property
    def is_elsewhere(self) -> bool:
        """True in a process that was forked from the one that made the object, unless it may be used `anywhere`."""
        return self._process is not None and os.getpid() != self._process

    @property
    def is_over(self) -> bool:
        """True if there is nothing to close: the object is closed already, or was made in another process (and may not
        be used `anywhere`).
        """
        return self.is_closed or self.is_elsewhere

    def check(self, call: str) -> bool:
        """Returns True. Raises UsageError (K731) if the object is closed, or was made in another process and may not be
        used `anywhere`. `call`: name of the refused call, for its text.
        """
        if self.is_elsewhere:
            raise misuse_error(f"{call}: this {self._name} was made in another process; make one after the fork")
        if self.is_closed:
            raise misuse_error(f"{call}: this {self._name} is closed")
        return True

    def end(self) -> bool:
        """Marks the object as closed; True: the caller closes it. Returns False, without effect, if `is_over` is."""
        if self.is_over:
            return False
        self.is_closed = True
        return True
