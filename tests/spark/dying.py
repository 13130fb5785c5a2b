"""A script's part for tests that kill a command of Spark's at one of its steps: environment KILL_AT."""

from __future__ import annotations

from typing import Final

DYING: Final = """
import os, signal
from itertools import count

os.environ.setdefault("KILL_GROUP", str(os.getpgrp()))  # the command and Spark; tasks are a group of their own


def die():
    os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


def around(owner, name, step, nth, when=lambda *_: True):
    '''Everything dies before the nth call of one process, or (step ends with a dot) right after it.'''
    original, calls = getattr(owner, name), count(1)

    def patched(*arguments, **named):
        fatal = os.environ["KILL_AT"] == step and when(*arguments) and next(calls) == nth
        if fatal and not step.endswith("."):
            die()
        answer = original(*arguments, **named)
        if fatal:
            die()
        return answer

    setattr(owner, name, patched)
"""
