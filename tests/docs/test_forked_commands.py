"""A forked command is what a process of its own would be, for whoever typed it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def bash(text: str, folder: Path, *first: Path) -> tuple[int, str]:
    """Exit code and both streams of a script, with these folders first on PATH."""
    path = ":".join([*map(str, first), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", text], cwd=folder, env={**os.environ, "PATH": path}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


SHOW = """
import os, signal, sys
print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("COLOUR"), sys.stdin.read())
print(os.umask(0), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGCHLD))
print(sorted(name for name in os.listdir("/dev/fd") if os.path.exists(f"/dev/fd/{name}")), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "text",
    [
        "kodoctl --version; kodo-consumer run --nothing; echo $?",
        "kodoctl lint nowhere.yaml; echo $?",
        "umask 0022; echo hello | COLOUR=red python show.py one 'two words' 2>&1",
        "trap '' HUP; (cd /; python $OLDPWD/show.py & wait $!)",
        "python -c 'import sys; print(sys.argv, sys.path[0])' -x; echo 'print(1)' | python; python - <<< 'print(2)'",
        'for end in 3 None \'"words"\'; do echo "import sys; sys.exit($end)" > end.py; python end.py; echo $?; done',
        "echo '1 / 0' > wrong.py; python wrong.py 2> said; echo $?; tail -1 said",
        (
            "echo 'import atexit, threading; atexit.register(print, 1); threading.Thread(target=print, args=[2]).start()' > late.py"
            "; python late.py > late; sort late"
        ),
    ],
)
def test_it_answers_as_a_process_of_its_own(text, commands, tmp_path):
    (tmp_path / "show.py").write_text(SHOW)

    assert bash(text, tmp_path, commands) == bash(text, tmp_path)


WAIT = "import os, time\nprint(os.getpid(), flush=True)\nwhile True: time.sleep(0.05)"
"""Waits for a signal. (`signal.pause()` waits for ever if the signal comes just before.)"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_client_and_its_child(number, commands, tmp_path):
    (tmp_path / "wait.py").write_text(WAIT)

    with subprocess.Popen([commands / "python", "wait.py"], cwd=tmp_path, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        child = int(client.stdout.readline())
        assert child != client.pid
        client.send_signal(number)

        assert client.stdout.read() == b""  # the child is gone: nobody can write any more
        assert client.wait() == -number


def test_a_child_that_answers_a_signal_decides_how_it_ends(commands, tmp_path):
    (tmp_path / "end.py").write_text(
        f"import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n{WAIT}"
    )

    with subprocess.Popen([commands / "python", "end.py"], cwd=tmp_path, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        client.terminate()

        assert client.wait() == 7
