"""Handler specification: the user's function, and how it is executed. It is checked when it is declared, so that errors
(KodoctlError, most of them UsageError) are reported before anything runs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kodo_consumer.core.engine.handler_runs import DeferralLimits
from kodo_consumer.core.payloads.codec import Payloads, model_of
from kodo_consumer.core.values.envelope import Duration, UnitError
from kodo_consumer.core.values.lane_set import in_proportion
from kodo_consumer.core.values.poison import MAX_CRASHES
from kodo_consumer.runtime.async_executor import AsyncExecutor
from kodo_consumer.runtime.batch_executor import Batching, BatchRunner, on_batches, on_batches_later
from kodo_consumer.runtime.dependencies import bare_signature, inject
from kodo_consumer.runtime.handler_errors import ExceptionReporter
from kodo_consumer.runtime.handler_results import (
    BatchResult,
    SingleResult,
    check_async_results,
    check_results,
    is_coroutine,
)
from kodo_consumer.runtime.log_output import present_setup
from kodo_consumer.runtime.thread_executor import ThreadExecutor
from kodoctl.errors import Diagnostic, KodoctlError, UsageError, error

if TYPE_CHECKING:
    from kodo_consumer.adapters.tracing.handler_spans import HandlerSpans
    from kodo_consumer.core.values.broker import Broker
    from kodo_consumer.core.values.error_text import ErrorTextReader
    from kodo_consumer.core.values.handler_executor import HandlerExecutor
    from kodo_consumer.core.values.policy import Policy
    from kodo_consumer.message import Check
    from kodo_consumer.runtime.handler_errors import Forecast
    from kodo_consumer.runtime.lifespans import Lifespans
    from kodo_consumer.runtime.middleware import Hooks
    from kodo_consumer.runtime.settings import Settings
    from kodo_consumer.runtime.worker import Worker

MAX_BATCH: Final = 10_000
_NO_TIMEOUT: Final = 10**12  # ms: processes keep time-outs themselves
_RESTART: Final = 60_000  # ms that a process in place of another one may take to start


class MessageStorage(Protocol):
    """Storage through which messages go to their handler: kodo_consumer.inbox.Inbox."""

    def open(self, broker: Broker, policy: Policy) -> Broker:
        """Returns a broker that delivers messages from the storage. Raises KodoctlError as `check` does."""

    def check(self) -> None:
        """Checks that `open` can succeed, with requests to the storage only. Raises KodoctlError if it cannot."""


@dataclass(frozen=True)
class HandlerSpec:
    """A handler as declared. `processes`: number of processes that run it, 0: it runs in this one. `batching`: None: it
    handles single messages. `inbox`: stores its messages first; None: they come from the broker.
    """

    function: Callable[..., Any]
    processes: int = 0
    batching: Batching | None = None
    inbox: MessageStorage | None = None

    @property
    def is_async(self) -> bool:
        """True if the handler is async: a coroutine function, or an object whose `__call__` is one."""
        return is_coroutine(self.function)

    @property
    def name(self) -> str:
        """Name of the function, by which processes import it: its module, a colon and its qualified name."""
        module = getattr(self.function, "__module__", "")
        return f"{module}:{getattr(self.function, '__qualname__', type(self.function).__name__)}"

    @cached_property
    def model(self) -> Any:
        """Type that the handler's annotation names for the payload; None: it names none. Raises TypeError, which
        `problems` reports as a finding.
        """
        return model_of(self.function)

    def problems(self) -> Iterator[Diagnostic]:
        """Yields a finding for each reason why the handler cannot run."""
        what, is_readable = "a list of messages" if self.batching else "one message", True
        try:
            bare_signature(self.function).bind(object())
        except TypeError as problem:
            yield error("K750", "handler cannot be called", f"{self.name} is called with {what}: {problem}")
        except ValueError:  # built in, without a signature to look at
            pass
        except UsageError as problem:  # an annotation with Depends: the model's could not be read either
            is_readable = False
            yield from problem.diagnostics
        if inspect.isasyncgenfunction(self.function) or inspect.isgeneratorfunction(self.function):
            yield error("K750", "handler cannot be called", f"{self.name} is a generator: nothing in it would ever run")
        try:
            Payloads(model=self.model if is_readable else None).prepare()
        except TypeError as problem:
            yield error("K753", "annotation cannot be read", f"{self.name}: {problem}")
        if self.batching and not 1 <= self.batching.most <= MAX_BATCH:
            yield error("K754", "invalid batch settings", f"max {self.batching.most}: from 1 to {MAX_BATCH} messages")
        if self.batching and not self.batching.wait >= 0:  # or it is no number
            yield error("K754", "invalid batch settings", f"wait {self.batching.wait} s: zero or more")
        if self.processes < 0:
            yield error("K752", "handler cannot run in a process", f"process={self.processes}: True, or how many")
        if self.processes:
            yield from self._process_problems()

    def _process_problems(self) -> Iterator[Diagnostic]:
        if self.is_async:
            detail = f"{self.name} is async: a handler in processes is a plain function"
            yield error("K752", "handler cannot run in a process", detail)
        if self.batching:
            yield error("K752", "handler cannot run in a process", f"{self.name} is a batch handler")
        module, _, path = self.name.partition(":")
        if "<" in path:
            detail = (
                f"{self.name}: a lambda or a function within a function cannot be imported there; move it to the module"
            )
            yield error("K752", "handler cannot run in a process", detail)
        elif not inspect.isfunction(self.function):
            detail = f"{self.name} is an object: processes import a function by its name"
            yield error("K752", "handler cannot run in a process", detail)
        elif module == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
            detail = f"{self.name} was typed in: put it into a file that processes can import"
            yield error("K752", "handler cannot run in a process", detail)

    def check(self) -> HandlerSpec:
        """Returns itself. Raises UsageError with all `problems`."""
        if problems := list(self.problems()):
            raise UsageError(*problems)
        return self

    # ---- how it is run

    def policy_for_worker(self, policy: Policy, hooks: Hooks) -> Policy:
        """Policy changed for a worker of this handler: slots and bulkheads differ for processes and batches, which
        reserve no slots, and the time-out for processes. Raises KodoctlError if a batch waits longer than half the
        time-out.
        """
        if self.processes:
            timeout = _NO_TIMEOUT
            if hooks.any_around_handling:  # they may hang: longer than its runs can take no message is waited for
                timeout = MAX_CRASHES * (policy.handler_timeout + _RESTART)
            declared = self.processes if policy.adaptive else policy.concurrency
            bulkheads = in_proportion(policy.bulkheads, self.processes, declared)
            return replace(
                policy,
                concurrency=self.processes,
                bulkheads=bulkheads,
                slot_ratio=(self.processes, declared),
                handler_timeout=timeout,
                reserves_slots=False,
            )
        if self.batching:
            if 2 * self.batching.wait * 1000 > policy.handler_timeout:
                detail = (
                    f"wait {self.batching.wait:g} s is more than half of handler_timeout {policy.handler_timeout} ms"
                )
                raise KodoctlError(error("K754", "invalid batch settings", detail))
            most = self.batching.most
            bulkheads = in_proportion(policy.bulkheads, most, 1)
            return replace(
                policy,
                concurrency=policy.concurrency * most,
                bulkheads=bulkheads,
                slot_ratio=(most, 1),
                reserves_slots=False,
            )
        return policy

    def allow_deferral(self, worker: Worker, settings: Settings) -> None:
        """Lets this handler defer its messages in a worker, unless it runs in processes or in batches. Deferred and
        running messages together may be `max_deferred` of the settings, at most half of those that the worker may have
        in memory, but always as many as it has slots. `defer_timeout` of the settings ends those for which the handler
        names no time.
        """
        if not (self.processes or self.batching):
            most = min(settings.max_deferred, worker.policy.max_held // 2)
            worker.engine.runs.allow_deferral(DeferralLimits(most, settings.defer_timeout / 1000))

    def runner(
        self,
        policy: Policy,
        check: Check | None,
        hooks: Hooks,
        traces: HandlerSpans | None = None,
        forecast: Forecast | None = None,
    ) -> HandlerExecutor:
        """New executor of the handler; its processes are started and lifespans entered, but no message is taken before
        `start`. `forecast`: returns the next step of a failed message for the log. Raises KodoctlError if processes
        cannot import the handler, or a lifespan fails; nothing is left running then.
        """
        texts = hooks.error_texts(policy)
        if self.processes:
            return self._pool(policy, check, hooks, traces, texts, forecast)
        function = self.executor_function(hooks, traces, texts=texts, forecast=forecast)
        if self.is_async:
            executor = _async_executor(function, policy.concurrency, texts, forecast, hooks.lifespans)
            inner: HandlerExecutor = executor
            hooks.run_on(executor.loop)
        else:
            hooks.lifespans.enter()
            inner = ThreadExecutor(function, policy.concurrency, texts, forecast)
        return BatchRunner(inner, self.batching) if self.batching else inner

    def executor_function(
        self,
        hooks: Hooks,
        traces: HandlerSpans | None = None,
        inner: Callable[[Any], Any] | None = None,
        *,
        texts: ErrorTextReader | None = None,
        forecast: Forecast | None = None,
        lifespans: Lifespans | None = None,
    ) -> Callable[[Any], Any]:
        """Function that executors call with a message, or with a Batch: the handler (or `inner` instead) with the
        user's middleware and spans around it. `texts` and `forecast`: for exceptions that a batch handler returns.
        `lifespans`: whose values dependencies get; None: those of `hooks`.
        """
        batches = self.batching is not None
        judge = (BatchResult if batches else SingleResult)(self.name)
        function = (check_async_results if self.is_async else check_results)(inner or self.function, judge)
        if inner is None:  # what it returns counts before its providers are left
            values = (hooks.lifespans if lifespans is None else lifespans).values
            function = inject(self.function, values, call=function, batches=batches)
        function = hooks.around(function, is_async=self.is_async, batches=batches)
        if batches:
            function = (on_batches_later if self.is_async else on_batches)(
                function, ExceptionReporter(texts, forecast=forecast).outcome
            )
        if traces is None:
            return function
        return traces.around(function, is_async=self.is_async, batches=batches)

    def _pool(
        self,
        policy: Policy,
        check: Check | None,
        hooks: Hooks,
        traces: HandlerSpans | None,
        texts: ErrorTextReader | None,
        forecast: Forecast | None,
    ) -> HandlerExecutor:
        from kodo_consumer.runtime.process_pool.pool import ProcessRunner
        from kodo_consumer.runtime.process_pool.worker_process import ProcessTask

        module, _, path = self.name.partition(":")
        job = ProcessTask(module, path, policy.lanes, check, texts, hooks.lifespans.names, present_setup())
        timeout = policy.handler_timeout / 1000
        if hooks.any_around_handling:
            from kodo_consumer.runtime.process_pool.middleware_pool import make_middleware_pool

            carry = None if traces is None else traces.carrier
            if texts is not None:
                job = replace(job, texts=texts.for_process())
            return make_middleware_pool(
                job, self.processes, timeout, partial(self.executor_function, hooks, traces), carry, texts, forecast
            )
        pool = ProcessRunner(job, self.processes, timeout, traces, forecast)
        pool.launch()
        return pool


def _async_executor(
    function: Callable[[Any], Any],
    slots: int,
    texts: ErrorTextReader | None,
    forecast: Forecast | None,
    lifespans: Lifespans,
) -> AsyncExecutor:
    """Executor with the lifespans entered on its loop. Raises KodoctlError if one fails."""
    executor = AsyncExecutor(function, slots, texts, forecast)
    if lifespans:
        try:
            executor.enter(lifespans)
        except BaseException:
            executor.stop()
            raise
    return executor


def processes_of(process: bool | int, slots: int) -> int:  # noqa: FBT001  # what the decorator takes
    """Number of processes: for True one for each core, but at most one for each slot; for False 0; else the number
    itself.
    """
    if process is True:
        from kodo_consumer.runtime.process_pool.pool import cores

        return min(cores(), slots)
    return int(process)


def seconds_of(span: str | float) -> float:
    """Seconds of a duration such as "50ms", or of a number of seconds. Raises UsageError."""
    try:
        return Duration.parse(span).seconds if isinstance(span, str) else float(span)
    except (UnitError, ValueError) as problem:
        raise UsageError(error("K754", "invalid batch settings", f"wait: {problem}")) from None
