"""Compression of what is sent on: the maximum of the topic decides, and the measure errs to the safe side."""

from __future__ import annotations

import random
import zlib

import pulsar
import pytest

from kodoctl.pulsar.binary.compressed_moves import compression, fits_compressed


def test_a_topic_with_a_maximum_of_its_own_gets_what_can_be_measured() -> None:
    assert compression(0) is pulsar.CompressionType.ZSTD
    assert compression(1_000) is pulsar.CompressionType.ZLib


@pytest.mark.parametrize("payload", [b"z" * 9_000_000, random.Random(7).randbytes(100_000)])
def test_a_message_fits_by_its_compressed_payload_all_its_other_bytes_and_a_margin(payload: bytes) -> None:
    packed = len(zlib.compress(payload))
    least = 500 + packed + packed // 32
    assert fits_compressed(payload, len(payload) + 500, least)
    assert not fits_compressed(payload, len(payload) + 500, least - 1)


@pytest.mark.parametrize("payload", [None, b""])
def test_what_has_no_payload_is_not_made_smaller(payload: bytes | None) -> None:
    assert not fits_compressed(payload, 500, 499)
