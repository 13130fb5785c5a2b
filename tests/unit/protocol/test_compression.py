"""Compression of messages: the file and the maximum of the topic decide, and the measure errs to the safe side."""

from __future__ import annotations

import random
import zlib

import pulsar
import pytest

from kodoctl.protocol.compression import algorithm_within, fits_compressed, next_algorithm
from kodoctl.pulsar.binary.compression_types import compression_type

FLAT, NOISE = b"z" * 100_000, random.Random(7).randbytes(100_000)
ALGORITHMS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_of_the_file_is_one_of_the_library(name: str) -> None:
    assert compression_type(name) is ALGORITHMS[name]


@pytest.mark.parametrize(("declared", "order"), [("", ["zstd"]), ("zstd", []), ("lz4", ["zstd"]), ("zlib", ["zstd"])])
def test_a_message_that_the_client_refuses_goes_by_the_strongest_algorithm_once(
    declared: str, order: list[str]
) -> None:
    tried: list[str] = []
    while following := next_algorithm(declared, tried[-1] if tried else ""):
        tried.append(following)
    assert tried == order


@pytest.mark.parametrize("declared", ["", "lz4", "zlib", "zstd", "snappy"])
@pytest.mark.parametrize("is_free", [True, False])
def test_a_maximum_of_the_topics_own_is_never_passed(declared: str, *, is_free: bool) -> None:
    def chosen(payload: bytes | None, size: int, largest: int) -> str | None:
        return algorithm_within(declared, payload, size, largest, is_free=is_free)

    assert chosen(NOISE, 100_500, 200_000) == ""
    assert chosen(None, 500, 500) == "", "nothing to compress, nothing that grows"
    assert chosen(None, 501, 500) is None
    measured = "" if declared == "zlib" else "zlib" if is_free else None
    assert chosen(FLAT, 100_500, 50_000) == measured, "the only one that can be measured before"
    assert chosen(NOISE, 100_500, 50_000) is None
    tight = chosen(NOISE, 100_500, 100_500)
    assert tight == ("" if not declared else "none" if is_free else None), (
        "noise grows, and the broker would not take it"
    )


@pytest.mark.parametrize("name", ["lz4", "zlib", "zstd", "snappy"])
def test_the_growth_of_noise_is_within_the_margin(name: str) -> None:
    if name == "zlib":
        assert len(zlib.compress(NOISE)) <= len(NOISE) * 1.001 + 128
    assert algorithm_within(name, NOISE, len(NOISE), len(NOISE) + 128, is_free=False) is None
    assert algorithm_within(name, NOISE, len(NOISE), len(NOISE) * 7 // 6 + 128, is_free=False) == ""


@pytest.mark.parametrize("payload", [b"z" * 9_000_000, random.Random(7).randbytes(100_000)])
def test_a_message_fits_by_its_compressed_payload_all_its_other_bytes_and_a_margin(payload: bytes) -> None:
    packed = len(zlib.compress(payload))
    least = 500 + packed + packed // 32
    assert fits_compressed(payload, len(payload) + 500, least)
    assert not fits_compressed(payload, len(payload) + 500, least - 1)


@pytest.mark.parametrize("payload", [None, b""])
def test_what_has_no_payload_is_not_made_smaller(payload: bytes | None) -> None:
    assert not fits_compressed(payload, 500, 499)
