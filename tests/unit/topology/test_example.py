"""`kodoctl init` writes files that are right in every way we know to check."""

import pytest

from kodoctl.topology.example import example
from kodoctl.topology.fmt.formatter import format_text
from kodoctl.topology.names import InvalidNameError
from tests.unit.topology.topology_files import expanded, report_on

SHAPES = {
    "simplest": {"orders"},
    "simple": {"orders", "orders-billing-RETRYING", "orders-billing-DLQ"},
    "single": {
        "orders",
        "orders-billing-RETRYING",
        "orders-billing-PENDING",
        "orders-billing-BLOCKING",
        "orders-billing-DLQ",
    },
}
SHAPES["backup"] = SHAPES["single"] | {"orders-B1"}
SHAPES["double"] = (
    SHAPES["backup"] | {"orders-L2"} | {f"orders-L2-billing-{state}" for state in ("RETRYING", "PENDING", "BLOCKING")}
)


def whole(name: str, shape: str) -> str:
    text = example(name, shape)
    return text[text.index("version:") :]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_lints_clean_is_laid_out_and_is_the_shape_it_says(shape: str) -> None:
    assert not report_on(whole("trade", shape)).findings
    assert format_text(example("trade", shape)) == example("trade", shape)
    assert {topic.name.local for topic in expanded(whole("trade", shape)).topics} == SHAPES[shape]


@pytest.mark.parametrize("name", ["5", "true", "null", "1e3", "a=b:c", "x.y_z", "-"])
def test_any_name_that_pulsar_takes_is_written_so_that_it_is_read_back(name: str) -> None:
    spec = expanded(whole(name, "simple")).topology.spec
    assert (spec.name, spec.namespace) == (name, name)


@pytest.mark.parametrize("name", ["", "my trade", "a/b", "..", 'x"', "kodoctl"])
def test_a_name_that_pulsar_or_lint_refuses_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        example(name, "simple")
