"""`kodoctl`, `kodo-consumer` and `python` for the shell blocks of a page, without an interpreter's start and its imports.

A server that has imported both packages forks a child for every command; the child takes the client's streams, folder and
environment and runs the installed script, or the file that `python` is given, as the main program. The client
(forked_client.py) stands on PATH under these names: it passes on its signals and ends as the child ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kodoctl.cli.common.console import end_process

ROOT = Path(__file__).parents[2]
NAMES = ("kodoctl", "kodo-consumer", "python")
_CLIENT = Path(__file__).with_name("forked_client.py")
_LEFT_OUT = ("kodoctl.__main__", "kodo_consumer.adapters.tracing")
"""Modules that are programs, and one of an extra: such libraries start threads or read the environment when imported."""
_SIZE = 4


@contextlib.contextmanager
def forked_commands() -> Iterator[Path]:
    """Runs the server; the folder to put first on PATH."""
    with tempfile.TemporaryDirectory(prefix="kodo-") as folder:
        for name in NAMES:
            script = Path(folder, name)
            script.write_text(f"#!{sys.executable} -ISE\n{_CLIENT.read_text(encoding='utf-8')}", encoding="utf-8")
            script.chmod(0o700)
        command = [sys.executable, "-m", "tests.docs.forked_commands", folder]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the server of commands did not start"
            yield Path(folder)


@dataclass(frozen=True)
class Command:
    """What a client asks for: a script and all that a process inherits."""

    words: list[str]
    folder: bytes
    environ: dict[bytes, bytes]
    umask: int
    ignored: list[int]
    streams: list[int]

    @classmethod
    def receive(cls, client: socket.socket) -> Command | None:
        """The command of a client; None when it left."""
        size, streams, _, _ = socket.recv_fds(client, _SIZE, 3)
        text = client.recv(int.from_bytes(size, sys.byteorder), socket.MSG_WAITALL)
        if not text:
            return None
        words, folder, environ, umask, ignored = marshal.loads(text)  # from a process of the same test
        return cls(words, folder, environ, umask, ignored, streams)

    def close(self) -> None:
        """Closes this process's copies of the streams."""
        for stream in self.streams:
            os.close(stream)

    def run(self) -> None:
        """Runs the script as this process's main program."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
        self.close()
        os.chdir(self.folder)
        os.umask(self.umask)
        os.environb.clear()
        os.environb.update(self.environ)
        for number in self.ignored:
            signal.signal(number, signal.SIG_IGN)
        script = Path(self.words[0]).absolute()
        sys.argv, sys.path[0] = self.words, str(script.parent.resolve())
        sys.modules["__main__"] = program = ModuleType("__main__")
        program.__file__ = str(script)
        code: object = None
        try:
            exec(compile(script.read_bytes(), script, "exec"), program.__dict__)  # as the interpreter does
        except SystemExit as end:
            code = end.code
        if isinstance(code, str):
            sys.exit(code)
        ending: Any = threading
        ending._shutdown()  # as an interpreter's end begins; its rest would copy all memory of the server
        end_process(code if isinstance(code, int) else 0, at_once=True)


class Server:
    """Forks a child for each command, tells its client how it ended, and ends the child of a client that was killed."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._ended, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup)
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor of its client: a child's number, and its client."""

    def serve(self) -> Command | None:
        """Returns in a child, with its command; in the server at the end of its standard input."""
        while True:
            watched: list[Any] = [0, self._ended, self._listener, *self._children]
            ready, _, _ = select.select(watched, [], [])
            if 0 in ready:
                return self._end()
            for descriptor in self._children.keys() & set(ready):
                self._pass_on(*self._children[descriptor])
            if self._ended in ready:
                self._bury()
            if self._listener in ready and (command := self._accept()) is not None:
                return command

    def _accept(self) -> Command | None:
        client, _ = self._listener.accept()
        command = Command.receive(client)
        if command is None:
            client.close()
            return None
        child = os.fork()
        if not child:
            self._leave(client)
            return command
        command.close()
        self._children[client.fileno()] = child, client
        return None

    def _leave(self, own: socket.socket) -> None:
        """What a child does not inherit of a server."""
        os.close(signal.set_wakeup_fd(-1))
        os.close(self._ended)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for opened in (self._listener, own, *(client for _, client in self._children.values())):
            opened.close()

    @staticmethod
    def _pass_on(child: int, client: socket.socket) -> None:
        """Each byte of a client is a signal for its child, which is not buried yet; no byte: the client was killed."""
        for number in client.recv(64) or (signal.SIGKILL,):
            os.kill(child, number)

    def _bury(self) -> None:
        os.read(self._ended, 512)
        for descriptor, (child, client) in list(self._children.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del self._children[descriptor]
                with client, contextlib.suppress(OSError):
                    client.sendall(os.waitstatus_to_exitcode(status).to_bytes(_SIZE, sys.byteorder, signed=True))

    def _end(self) -> None:
        for child, _ in self._children.values():
            os.kill(child, signal.SIGKILL)


def import_all() -> None:
    """Imports the packages of the command lines, without the pipeline: a command imports what it needs when it needs it. Without a thread, which no child would have."""
    for package in ("kodoctl", "kodo_consumer"):
        _import_below(importlib.import_module(package))
    assert threading.active_count() == 1
    gc.freeze()


def _import_below(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name not in _LEFT_OUT:
            imported = importlib.import_module(module.name)
            if module.ispkg:
                _import_below(imported)


def main() -> None:
    """The server itself, and every child of it."""
    import_all()
    server = Server(str(Path(sys.argv[1], "server")))
    os.write(1, b"ready\n")
    command = server.serve()
    if command is not None:
        command.run()


if __name__ == "__main__":
    main()
