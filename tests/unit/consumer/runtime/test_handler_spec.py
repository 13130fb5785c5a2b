"""A handler that cannot run: all reasons are reported at once."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from kodo_consumer.message import Message
from kodo_consumer.runtime.batch_executor import Batching
from kodo_consumer.runtime.dependencies import Depends
from kodo_consumer.runtime.handler_spec import HandlerSpec

from kodoctl.errors import UsageError


def test_an_annotation_that_cannot_be_read_hides_no_other_finding() -> None:
    def local() -> int:
        return 3

    def handle(messages: list[Message[dict[str, Any]]], value: Annotated[int, Depends(local)]) -> Any:
        yield messages, value

    with pytest.raises(UsageError) as caught:
        HandlerSpec(handle, processes=-1, batching=Batching(0, -1.0)).check()
    found = caught.value.diagnostics
    assert [one.code for one in found] == ["K753", "K750", "K754", "K754", "K752", "K752", "K752"]
    assert "name 'local' is not defined; define in the module" in found[0].detail


@pytest.mark.parametrize("wait", [-1.0, float("nan")])
def test_a_batch_that_would_wait_for_ever_is_refused(wait: float) -> None:
    with pytest.raises(UsageError, match="K754"):
        HandlerSpec(lambda messages: None, batching=Batching(10, wait)).check()


def test_a_model_that_cannot_be_read_is_one_finding() -> None:
    def handle(message: Message[Missing]) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(UsageError) as caught:
        HandlerSpec(handle).check()
    (finding,) = caught.value.diagnostics
    assert finding.code == "K753"
    assert "its annotation Message[Missing] cannot be read" in finding.detail
