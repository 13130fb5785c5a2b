"""Hostile files end in a finding, without running anything, within 200 MiB: the command as a process of its own."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = b"version: 1\nname: n\ntenant: k\nnamespace: s\n"
LIMIT = 200 << 20


def laughs() -> bytes:
    """Twelve levels of ten aliases: a billion texts, a thousand gigabytes if written out."""
    text = HEAD + b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 12):
        text += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n".encode()
    return text


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "aliases that explode to gigabytes": (laughs, "K008"),
    "an alias that contains itself": (lambda: HEAD + b"topics: &t {a: *t}\n", "K008"),
    "100,000 levels of brackets": (lambda: HEAD + b"topics: " + b"[" * 100_000 + b"]" * 100_000, "K010"),
    "100,000 levels of maps": (lambda: HEAD + b"topics: " + b"{a: " * 100_000 + b"}" * 100_000, "K010"),
    "100,000 dashes": (lambda: HEAD + b"topics:\n" + b"- " * 100_000 + b"x", "K010"),
    "50 MB of comments": (lambda: HEAD + b"# x\n" * (50 << 18), "K009"),
    "NUL bytes": (lambda: HEAD + b"description: a\0b\n" * 1000, "K012"),
    "terminal escapes": (lambda: HEAD + b"description: \x1b]0;owned\x07\n", "K012"),
    "escapes in quotes": (lambda: HEAD + b'description: "\\e]0;owned\\a"\n', "K012"),
    "invalid UTF-8": (lambda: HEAD + b"description: \xff\xfe\n", "K012"),
    "UTF-16": (lambda: (HEAD + b"topics: {}\n").decode().encode("utf-16"), "K012"),
    "duplicate keys": (lambda: HEAD + b"name: m\n" * 200_000, "K002"),
    "tags that build objects": (lambda: HEAD + b"topics: !!python/object/apply:os.system ['touch PWNED']\n", "K013"),
    "tags that build modules": (lambda: HEAD + b"topics: !!python/module:antigravity\n", "K013"),
    "merge keys": (lambda: HEAD + b"x: &x {a: {}}\ntopics:\n  <<: *x\n", "K011"),
    "half a million unknown keys": (lambda: HEAD + b"".join(b"k%d: 1\n" % n for n in range(500_000)), "K008"),
    "a list without end": (lambda: HEAD + b"topics: [" + b"1," * 4_000_000 + b"]", "K008"),
    "300,000 wrong topics": (lambda: HEAD + b"topics:\n" + b"".join(b" t%d: {x: 1}\n" % n for n in range(300_000)), "K008"),
    "20,000 wrong topics": (lambda: HEAD + b"topics:\n" + b"".join(b" t%d: {x: 1}\n" % n for n in range(20_000)), "K003"),
    "a short file for millions of topics": (lambda: HEAD + b"topics:\n a:\n  levels: [L1, L2, L3, L4, L5, L6, L7, L8]\n  subscriptions:\n" + b"".join(b"   s%d: {}\n" % n for n in range(19_000)), "K008"),
    "allowances without end": (lambda: HEAD + b"topics: {}\n" + b"# kodoctl: allow K203 because x\n" * 200_000, "K018"),
    "100,000 environments": (lambda: HEAD + b"topics: {}\nenvironments:\n" + b"".join(b" e%d: {}\n" % n for n in range(100_000)), "K008"),
    "a number of a million digits": (lambda: HEAD + b"topics: {a: {partitions: " + b"9" * 1_000_000 + b"}}\n", "K004"),
}  # fmt: skip

MEASURE = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "kodoctl", "lint", sys.argv[1]], capture_output=True, text=True)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
print(done.stdout[-200_000:] + done.stderr)
"""


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_ends_in_a_finding_within_200_mib(what: str, tmp_path: Path) -> None:
    make, code = HOSTILE[what]
    path = tmp_path / "hostile.yaml"
    path.write_bytes(make())
    # a measuring process of its own: only its one child counts
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    first, _, shown = run.stdout.partition("\n")
    exit_code, peak = map(int, first.split())
    assert exit_code == 1, shown
    assert f" {code} error " in shown
    assert "Traceback" not in shown
    assert peak < LIMIT, f"{peak >> 20} MiB"
    assert not (tmp_path / "PWNED").exists()


def test_the_measure_counts_what_a_child_holds() -> None:
    """The limit above would be worthless if the measure did not see memory: a child that holds 300 MiB is seen to."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    subprocess.run([sys.executable, "-c", "x = b'1' * (300 << 20)"], check=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 >= max(before, 300 << 20)
