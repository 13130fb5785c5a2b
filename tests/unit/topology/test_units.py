"""Numbers with units: what people write, what is meant, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kodoctl.topology.units import UNLIMITED, Duration, Rate, Size, SizeRate, UnitError, as_limit


@pytest.mark.parametrize(
    ("text", "milliseconds", "shown"),
    [
        ("250ms", 250, "250ms"),
        ("90s", 90_000, "90s"),
        ("60s", 60_000, "1m"),
        ("1.5h", 5_400_000, "90m"),
        ("24h", 86_400_000, "1d"),
        ("0.5s", 500, "500ms"),
        ("7 d", 604_800_000, "7d"),
        ("0s", 0, "0s"),
        ("0d", 0, "0s"),
    ],
)
def test_durations_are_whole_milliseconds_and_print_in_the_largest_exact_unit(
    text: str, milliseconds: int, shown: str
) -> None:
    duration = Duration.parse(text)
    assert (int(duration), str(duration), repr(duration)) == (milliseconds, shown, shown)


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("512B", 512, "512B"),
        ("1024B", 1024, "1KiB"),
        ("10GiB", 10 << 30, "10GiB"),
        ("1.5MiB", 3 << 19, "1536KiB"),
        ("1kB", 1000, "1000B"),
        ("2MB", 2_000_000, "2000000B"),
        ("1GB", 10**9, "1000000000B"),
        ("1TB", 10**12, "976562500KiB"),
        ("1TiB", 1 << 40, "1TiB"),
        ("0B", 0, "0B"),
    ],
)
def test_sizes_are_whole_bytes_and_print_in_the_largest_exact_unit(text: str, size: int, shown: str) -> None:
    parsed = Size.parse(text)
    assert (int(parsed), str(parsed), repr(parsed)) == (size, shown, shown)


@pytest.mark.parametrize(
    ("text", "per_second"), [("100/s", 100.0), ("60/m", 1.0), ("5000/h", 5000 / 3600), ("86400 / d", 1.0)]
)
def test_rates_are_a_count_a_period(text: str, per_second: float) -> None:
    rate = Rate.parse(text)
    assert rate.per_second == per_second
    assert Rate.parse(str(rate)) == rate


@pytest.mark.parametrize("value", [Size(2**63 - 1), Size((2**63 - 1) << 20), Duration(2**63 - 1)])
def test_the_largest_value_that_pulsar_may_have_is_read_again(value: Size | Duration) -> None:
    """Some set it for want of a word for unlimited, and a plan that met one ended in a traceback."""
    assert type(value).parse(str(value)) == value


def test_a_data_rate_is_a_size_a_second() -> None:
    assert SizeRate.parse("10MiB/s") == SizeRate(Size(10 << 20))
    assert str(SizeRate.parse("10MiB/s")) == "10MiB/s"


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (Duration.parse, "10", "'10' has no unit: write one of ms, s, m, h, d, for example 30s"),
        (Duration.parse, "10 min", "'10 min' is not a duration"),
        (Duration.parse, "-1s", "'-1s' is not a duration"),
        (Duration.parse, "soon", "'soon' is not a duration"),
        (Duration.parse, "0.0001s", "'0.0001s' is not a whole number of milliseconds"),
        (Size.parse, "10", "'10' has no unit: write one of B, KiB"),
        (Size.parse, "10Gb", "'10Gb' is not a size"),
        (Size.parse, "0.1B", "'0.1B' is not a whole number of bytes"),
        (Size.parse, "9" * 20 + "B", "is not a size"),
        (Rate.parse, "100", "'100' is not a rate: a whole number per s, m, h or d, for example 100/s"),
        (Rate.parse, "1.5/s", "'1.5/s' is not a rate"),
        (Rate.parse, "100/y", "'100/y' is not a rate"),
        (Rate.parse, "١/s", "is not a rate"),
        (SizeRate.parse, "10MiB", "'10MiB' is not a data rate: a size per second, for example 10MiB/s"),
        (SizeRate.parse, "10MiB/m", "'10MiB/m' is not a data rate"),
        (SizeRate.parse, "10/s", "'10' has no unit"),
    ],
)
def test_what_is_no_quantity_says_what_would_be(parse: object, text: str, says: str) -> None:
    with pytest.raises(UnitError) as problem:
        parse(text)  # type: ignore[operator]
    assert says in str(problem.value)


@given(st.integers(0, 10**15))
def test_whatever_is_printed_reads_back_the_same(number: int) -> None:
    assert Duration.parse(str(Duration(number))) == number
    assert Size.parse(str(Size(number))) == number


def test_unlimited_compares_as_infinite() -> None:
    assert as_limit(UNLIMITED) > as_limit(Duration(10**18))
