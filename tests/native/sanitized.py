"""Tests with the native border built under AddressSanitizer and UndefinedBehaviorSanitizer, on a broker of their own
or on the one of KODOCTL_TEST_ADMIN_URL.

    python -m tests.native.sanitized [PYTEST ARGUMENT ...]

Without arguments: the contract tests of the broker port and the tests of the border itself. Any finding ends the test
process, and so the run, with the sanitizer's report. Leaks are not looked for here: Python keeps much at its end, and the
sanitizer keeps what was freed for a while. Nor do allocations fail, which it makes itself.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FLAGS: Final = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
TESTS: Final = (
    "tests/contract/test_broker_port.py", "tests/unit/consumer/adapters/pulsar/test_native_messages.py",
    "tests/unit/consumer/adapters/pulsar/test_native_border.py", "tests/broker/test_native_messages_real.py",
    "tests/broker/test_consumer_unreadable.py", "tests/unit/pipeline/source/test_native_batches.py",
    "tests/broker/test_source_batches.py", "tests/broker/test_message_border_real.py", "-k",
    "not test_memory and not test_nothing_is_left and not test_an_allocation",
)  # fmt: skip
NAME: Final = "sanitized"


def main(arguments: list[str]) -> int:
    """Returns pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        if "KODOCTL_TEST_ADMIN_URL" in os.environ:
            return run(Path(folder), {}, arguments)
        kodoctl = str(Path(sys.executable).with_name("kodoctl"))
        subprocess.run([kodoctl, "dev", "up", "--name", NAME], check=True)
        try:
            shown = subprocess.run(
                [kodoctl, "dev", "status", "--name", NAME, "--format", "json"], capture_output=True, check=True
            )
            (instance,) = json.loads(shown.stdout)["instances"]
            urls = {"KODOCTL_TEST_ADMIN_URL": instance["admin_url"], "KODOCTL_TEST_BROKER_URL": instance["broker_url"]}
            return run(Path(folder), urls, arguments)
        finally:
            subprocess.run([kodoctl, "dev", "reset", "--name", NAME, "--yes"], check=True)


def build(folder: Path) -> None:
    """Compiles the package into a folder."""
    source = shutil.copytree(ROOT / "fast", folder / "fast", ignore=shutil.ignore_patterns("*.so"))
    script = "import hatch_build, pathlib, sys; hatch_build.compile_native(pathlib.Path(), *sys.argv[1:])"
    subprocess.run([sys.executable, "-c", script, *shlex.split(FLAGS)], cwd=source, check=True)


def run(folder: Path, urls: dict[str, str], arguments: list[str]) -> int:
    """Runs pytest on a broker, which was started without the sanitizers."""
    preload = [library(name) for name in ("libasan.so", "libstdc++.so.6")]  # the latter for its exceptions' sake
    paths = [folder / "fast/src", ROOT / "consumer", ROOT]
    environment = {
        **os.environ,
        **urls,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def library(name: str) -> str:
    """Where the compiler's own copy of a library is."""
    found = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
