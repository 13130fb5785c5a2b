"""Error texts: text of an exception, and the place where it was raised, redacted and cut so that both can travel with a
message.

Nothing of an exception is kept unless everything that redacts it has run on the whole of it. Pure, but for the user's
hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

from kodo_consumer.core.values.exceptions import HandlerFailedError, HandlerSignal
from kodo_consumer.core.values.outcomes import ErrorDetails, error_of
from kodoctl.protocol.properties import REDACTED

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from kodo_consumer.core.values.policy import ErrorTextPolicy

WINDOW: Final = 4_096  # characters that are searched: the time of a search may grow with their square
_MAX_CHAIN: Final = 4  # exceptions that led to one another
_MAX_FRAMES: Final = 30
_BETWEEN: Final = " > "  # frames
_OWN: Final = "kodo_consumer."
Hook = Callable[[str], str]
"""Redacts a text; where it raises, the text is not kept."""


class ErrorTextReader:
    """Reads error texts of exceptions. Any thread may call it.

    `hooks`: user functions that redact a text, called in their order and before the patterns of the policy. They cannot
    be pickled: a process of handlers gets the reader that `for_process` returns. `beneath`: this reader runs in such a
    process, and the worker has hooks that redact its results further.
    """

    def __init__(self, policy: ErrorTextPolicy, hooks: Sequence[Hook] = (), *, beneath: bool = False) -> None:
        self._policy, self._hooks, self._beneath = policy, tuple(hooks), beneath

    @property
    def redacts(self) -> bool:
        """True if texts of exceptions must be redacted, here or by the worker above a process of handlers."""
        return bool(self._policy.redact or self._hooks or self._beneath)

    def for_process(self) -> ErrorTextReader:
        """The reader for a process of handlers whose results this reader reads again: without hooks, and it keeps up to
        16,384 bytes of text and of stack each, because this reader cuts them.
        """
        most = 4 * WINDOW  # bytes of as many characters
        return ErrorTextReader(replace(self._policy, keep=most, stack=most), beneath=bool(self._hooks))

    def in_words(self, error: ErrorDetails) -> str:
        """Details for a log entry as `: text (at stack)`, without a part that is empty; "" if the worker redacts them
        further (`beneath`). They are not redacted here: `read` has done so.
        """
        if self._beneath:
            return ""
        return (f": {error.text}" if error.text else "") + (f" (at {error.stack})" if error.stack else "")

    def redact(self, text: str) -> str:
        """Returns a text that comes from no exception on one line, redacted and cut as `read` does with texts."""
        return self._details(text, "").text

    def read(self, problem: BaseException) -> ErrorDetails:
        """Returns text and stack of an exception, each on one line, redacted, and cut to the sizes of the policy.

        The text is that of the exception and of up to 3 exceptions that led to it, the first cause last. Handlers'
        requests, such as Retry, are left out of it, because their text is the reason. The stack is that of the first
        cause (of a request alone: its own): the innermost 30 frames at most, without this library's. If one of these
        exceptions has details of an error in another process, they are used instead.

        If texts are redacted (`redacts`), a note replaces a text or stack of more than WINDOW (4,096) characters, or
        one for which a hook raises, or returns no text or a longer one. Never raises.
        """
        chain = list(_chain(problem))
        brought = [error for one in chain if isinstance(one, HandlerFailedError) and (error := error_of(one.outcome))]
        if brought:  # from another process, where its exceptions stayed
            return self._details(*brought[0])
        speaking = [one for one in chain if not isinstance(one, HandlerSignal)]
        text = " <- ".join(_problem_text(one, named=one is not problem) for one in speaking)
        return self._details(text, _stack((speaking or [problem])[-1].__traceback__))

    def _details(self, text: str, stack: str) -> ErrorDetails:
        return ErrorDetails(
            cut(self._redact_line(text), self._policy.keep), cut_front(self._redact_line(stack), self._policy.stack)
        )

    def _redact_line(self, text: str) -> str:
        """The text on one line with everything redacted, or a note why nothing of it is kept."""
        if not (text and self.redacts):
            return harmless(text[:WINDOW])
        if len(text) > WINDOW:  # the rest of a secret that a cut parts would be no secret any more
            return f"(not kept: of {len(text)} characters, {WINDOW} can be searched)"
        text = harmless(text)
        for hook in self._hooks:
            try:
                text = _check_answer(hook(text))
            except BaseException as problem:  # noqa: BLE001  # whatever users do there; its text may be what it read
                return f"(not kept: {_name(hook)} failed with {type(problem).__name__})"
        for pattern in self._policy.patterns:
            text = pattern.sub(REDACTED, text)
        return text


def harmless(text: str) -> str:
    """The text on one line: one space for each run of white space, none at the ends, and U+FFFD for each other
    character that is not printable, as `str.isprintable` says.
    """
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in text)


def cut(text: str, most: int) -> str:
    """The text, if it has at most `most` bytes of UTF-8; else its beginning and `…`, which stands for the rest, within
    as many bytes; "" if `…` alone (3 bytes) does not fit. A lone surrogate raises UnicodeEncodeError.
    """
    if len(text.encode()) <= most:
        return text
    return text.encode()[: max(0, most - 3)].decode(errors="ignore") + "…" if most >= len("…".encode()) else ""


def cut_front(stack: str, most: int) -> str:
    """The innermost frames of a stack, within `most` bytes of UTF-8; `…` stands for the outer frames that are left out,
    and is alone if the innermost frame does not fit behind it. A stack of one frame is cut as `cut` does.
    """
    frames = stack.split(_BETWEEN)
    while len(frames) > 1 and len(_BETWEEN.join(frames).encode()) > most:
        frames = ["…", *frames[2:]] if frames[0] == "…" else ["…", *frames[1:]]
    return cut(_BETWEEN.join(frames), most)


def _check_answer(answer: object) -> str:
    if not isinstance(answer, str) or len(answer) > WINDOW:
        raise TypeError
    return harmless(answer)


def _name(hook: Hook) -> str:
    return harmless(str(getattr(hook, "__qualname__", type(hook).__name__)))[:100]


def _chain(problem: BaseException) -> Iterator[BaseException]:
    """The exception and those that led to it, as Python prints them: the first cause last."""
    one: BaseException | None = problem
    for _ in range(_MAX_CHAIN):
        if one is None:
            return
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _problem_text(problem: BaseException, *, named: bool) -> str:
    try:
        text = str(problem)
    except BaseException:  # noqa: BLE001  # an exception of the user's own making
        text = "(its text cannot be read)"
    kind = type(problem).__name__
    return f"{kind}: {text}" if named and text else kind if named else text


def _stack(trace: TracebackType | None) -> str:
    frames = [(frame, line) for frame, line in walk_tb(trace) if not _module(frame).startswith(_OWN)]
    return _BETWEEN.join(f"{_module(frame)}.{frame.f_code.co_qualname}:{line}" for frame, line in frames[-_MAX_FRAMES:])


def _module(frame: FrameType) -> str:
    name = str(frame.f_globals.get("__name__", "?"))
    return PurePath(frame.f_code.co_filename).stem if name == "__main__" else name
