"""Names and sizes of the protocol that a topology file may not choose: both packages say the same."""

from __future__ import annotations

from kodoctl.protocol import properties
from kodoctl.topology import names, units


def test_the_file_keeps_free_what_the_protocol_uses() -> None:
    assert properties.PREFIX == names.RESERVED_PREFIX
    assert properties.CONTROL_NAMESPACE == names.RESERVED_NAMESPACE
    assert properties.MAX_ERROR == units.MAX_ERROR_SIZE
