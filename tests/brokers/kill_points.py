"""Kill points of programs that tests run as processes: the text to put before such a program."""

KILL_POINTS = """
import os, signal
from itertools import count

STEP, NTH = os.environ.get("KILL_AT", ""), int(os.environ.get("KILL_NTH", "1"))


def around(owner, name, step, nth=NTH):
    '''The process dies before the nth call, or (step ends with a dot) right after it.'''
    original, calls = getattr(owner, name), count(1)

    def patched(*arguments, **named):
        fatal = STEP == step and next(calls) == nth
        if fatal and not step.endswith("."):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(*arguments, **named)
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, patched)
"""
