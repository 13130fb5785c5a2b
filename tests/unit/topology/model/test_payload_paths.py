"""Paths of payloads that are masked: what is no path is refused where it stands."""

import pytest
from pydantic import ValidationError

from kodoctl.topology.model.topology import LandedPayloads


def test_a_path_is_kept_as_it_is_written() -> None:
    assert LandedPayloads(mask=("$.a.email",)).mask == ("$.a.email",)


@pytest.mark.parametrize("path", ["a.email", "$.", 7, "$" + ".a" * 512])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(ValidationError):
        LandedPayloads.model_validate({"mask": [path]})
