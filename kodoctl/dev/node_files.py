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
"""For the few libraries with a log of their own: their warnings on the console hide what matters."""
_DNS: Final = "com.sun.jndi.dns.timeout.initial=1\ncom.sun.jndi.dns.timeout.retries=1\n"
"""The storage asks a name server for the name of 127.0.0.1, and needs none: half a minute where no server answers."""


def write(folder: Folder, files: Mapping[str, str], log: str) -> None:
    """Configuration anew (`files` of the folder `conf`, by name), an empty scratch folder, and logs that begin with
    this start: the earlier `log` stays beside it.
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
