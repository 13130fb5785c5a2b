"""Text from files and clusters cannot forge output."""

from __future__ import annotations

import re
import shlex
import subprocess
import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from kodoctl.render.annotations import Annotation, github_line
from kodoctl.text.escaping import MAX_SHOWN, code, markdown, one_line, printable, shell_line
from kodoctl.text.line import Line
from kodoctl.text.wrap import fold

EVIL = st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "L", "P", "S", "Cs"]))


@given(EVIL)
def test_whatever_gets_in_comes_out_on_one_line_that_no_terminal_obeys(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs") for character in shown)
    assert printable(shown) == shown
    shown.encode()  # nothing is left that UTF-8 could not say


@given(EVIL)
def test_a_line_of_a_view_is_one_line_even_if_somebody_forgot_to_escape(text: str) -> None:
    assert Line(text).text == printable(text)
    assert len(Line("x" * 1_000_000).text) < 5_000


@given(EVIL)
def test_inline_code_cannot_be_left(text: str) -> None:
    shown = code(text)
    assert shown[0] == shown[-1] == "`"
    assert "`" not in shown[1:-1]


@given(EVIL)
def test_text_in_markdown_means_nothing_and_mentions_nobody(text: str) -> None:
    shown = markdown(text)
    for position, character in enumerate(shown):
        if character in "`*_{}[]<>#|~":
            assert shown[position - 1] == "\\"
    assert "@" not in shown.replace("@\u200b", "")


def is_command(line: str) -> bool:
    """True if the runner of a job (actions/runner, ActionCommand) takes a line of its log for a command."""
    named, colons, _ = line.strip().removeprefix("::").partition("::")
    by_colons = line.strip().startswith("::") and colons and re.match(r"[A-Za-z-]+( |$)", named)
    return bool(by_colons or re.search(r"##\[[^\]]*\]", line))


PARTS = st.sampled_from(
    ["::", ":", "#", "##[", "[", "]", " ", "add-mask", "stop-commands", "x", "x" * 70, "\u2003", "\t"]
)


@given(st.lists(PARTS, max_size=30).map("".join))
@example(f"{'x' * 76} ::stop-commands::token")
@example("##[add-mask]e")
@example("a::error::b ###[error]c]")
def test_no_name_is_a_command_to_the_runner_of_a_job_wherever_a_line_is_folded(text: str) -> None:
    """The log of a job is read by its runner: a subscription's name could have hidden all that is at stake."""
    shown = printable(text)
    assert printable(shown) == shown
    folded = [*fold(one_line(text), 80), *fold(f"  {printable(text)}", 80), *fold(Line(f"    name {text}").text, 80)]
    assert not any(map(is_command, folded))


def test_addresses_with_two_colons_stay_as_they_are() -> None:
    for text in ("::1", "[::1]:8080", "::ffff:127.0.0.1", "a::b", "std::vector", "#[1]", "# ::: #"):
        assert printable(text) == text
    assert is_command(github_line(Annotation("error", "K001", "x", "", None))), "ours is one"


def test_readable_text_stays_as_it_is() -> None:
    text = "persistent://acme/ns/orders-L2, 7d → 3d, größer, 注文"
    assert one_line(text) == printable(text) == text


def test_a_megabyte_is_cut_to_what_somebody_reads() -> None:
    assert len(one_line("x" * 1_000_000)) == MAX_SHOWN
    assert one_line("x" * MAX_SHOWN) == "x" * MAX_SHOWN
    assert one_line("\x1b" * 1_000_000).count("\\x1b") == MAX_SHOWN - 1


def test_escapes_are_told_as_escapes() -> None:
    assert one_line("a\x1b[2Jb\nc\u202ed\u2028e") == r"a\x1b[2Jb\nc\u202ed\u2028e"


def test_a_line_for_a_shell_is_one_line_and_means_the_same_words() -> None:
    words = [
        "kodo-consumer",
        "a;b",
        "a b",
        "it's",
        "cause = 'a \"b\"'",
        "it's $HOME",
        "it's `id`",
        "it's\\",
        "it's!",
        "line\nbreak\r",
        "it's\\\n",
        "\x1b[31m",
        "\u202e",
    ]
    words += ["::error::x", "a ::b", "::stop", "c::", "##[group]c", "a ##[b]::", "::a\n::b's::"]
    line = shell_line(words)
    assert line.isprintable()
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert said.stdout.decode().split("\0")[:-1] == words
    assert shell_line(words[:3]) == shlex.join(words[:3])
    assert shell_line(["cause = 'negative amount'"]) == """ "cause = 'negative amount'" """.strip()


@given(st.lists(st.lists(st.sampled_from(["::", "##[", "error", " ", "'", "\n", ":", "\\", "#", "["])).map("".join)))
def test_no_word_of_a_command_line_is_changed_where_it_is_shown(words: list[str]) -> None:
    """A tenant may be called `::error::x`, which a page or a log must not show as another name."""
    line = shell_line(words)
    assert printable(line) == line
