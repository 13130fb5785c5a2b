"""Values of subscriptions that are judged one by one: what is refused, in words."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from kodoctl.topology.model.subscription import WorkedState, checked_error_size, checked_pattern
from kodoctl.topology.units import Size


def test_patterns_and_sizes_of_error_texts() -> None:
    assert checked_pattern("[0-9]{16}") == "[0-9]{16}"
    assert checked_error_size(Size(2_048)) == Size(2_048)
    with pytest.raises(PydanticCustomError, match="at most 2KiB"):
        checked_error_size(Size(2_049))
    with pytest.raises(PydanticCustomError, match="repeats what may also follow"):
        checked_pattern("(a+)+$")


def test_no_limit_and_no_slots_are_of_dead_letters() -> None:
    with pytest.raises(ValidationError, match="no worker receives dead letters"):
        TypeAdapter(WorkedState).validate_python("dead")
