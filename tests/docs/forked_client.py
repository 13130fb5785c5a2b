"""A command of a page's shell block: hands all that a process inherits to the server (forked_commands.py), passes on its own
signals, and ends as its child ends.

Modules below the standard library's: `import socket, signal` takes longer than everything else here. It is run by
a copy on PATH, whose name is the command's.
"""

import _signal
import _socket
import marshal
import posix
import sys

SIGNALS = (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGUSR1, _signal.SIGUSR2)
SIZE = 4

folder, _, name = __file__.rpartition("/")
words = sys.argv[1:]
if name != "python":
    words = [f"{sys.executable.rpartition('/')[0]}/{name}", *words]
elif words[:1] == [] or words[0].startswith("-"):
    posix.execv(sys.executable, [sys.executable, *words])

umask = posix.umask(0o077)
posix.umask(umask)
ignored = [number for number in SIGNALS if _signal.getsignal(number) == _signal.SIG_IGN]
command = marshal.dumps((words, posix.getcwdb(), posix.environ, umask, ignored))
streams = b"".join(number.to_bytes(SIZE, sys.byteorder) for number in range(3))
server = _socket.socket(_socket.AF_UNIX)
server.connect(f"{folder}/server")
server.sendmsg([len(command).to_bytes(SIZE, sys.byteorder)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(command)
for number in SIGNALS:
    if number not in ignored:
        _signal.signal(number, lambda number, _: server.send(bytes((number,))))

server.settimeout(0.2)
while True:
    try:
        ended = server.recv(SIZE)
        break
    except TimeoutError:
        continue  # a signal just before the wait has its handler called now
if len(ended) < SIZE:
    sys.exit("the server of commands is gone")
code = int.from_bytes(ended, sys.byteorder, signed=True)
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
