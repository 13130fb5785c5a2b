"""Files that a Java node reads at its start, and empty folders for its output."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kodoctl.dev import node_config
from kodoctl.host.private_files import make_private, write_private

if TYPE_CHECKING:
    from kodoctl.dev.instance import Folder

_JAVA_LOGGING: Final = "handlers=java.util.logging.ConsoleHandler\n.level=SEVERE\n"
"""Settings for the few libraries with a log of their own: their warnings on the console would hide more important
lines.
"""
_DNS: Final = "com.sun.jndi.dns.timeout.initial=1\ncom.sun.jndi.dns.timeout.retries=1\n"
"""Settings for the storage, which asks a name server for the name of 127.0.0.1 and needs none: without an answer this
takes half a minute.
"""


def write(folder: Folder, files: Mapping[str, str], log: str) -> None:
    """Prepares the folder of a node for a start: creates its folders, writes the configuration (`files`: name in the
    folder `conf` -> text, and the files that all nodes have), empties the scratch folder and `console.log`, and renames
    the earlier log (`log`: name of its file) to `LOG.before`, so that the log begins with this start.
    """
    shutil.rmtree(folder.scratch, ignore_errors=True)
    for place in (folder.conf, folder.logs, folder.data, folder.scratch):
        make_private(place)
    common = {
        "log4j2.xml": node_config.packaged_text("log4j2.xml"),
        "logging.properties": _JAVA_LOGGING,
        "jndi.properties": _DNS,
    }
    for name, text in {**common, **files}.items():
        write_private(folder.conf / name, text)
    with suppress(FileNotFoundError):
        (folder.logs / log).rename(folder.logs / f"{log}.before")
    write_private(folder.logs / "console.log", "")
