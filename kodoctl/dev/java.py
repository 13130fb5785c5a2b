"""Java on this machine: its program, the check of its version, and the options with which a broker starts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kodoctl.dev.dev_errors import failure
from kodoctl.host.programs import find_program

MAIN_CLASS: Final = "org.apache.pulsar.PulsarStandaloneStarter"
HEAP_MB: Final = 1536
DIRECT_MB: Final = 1024

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_SECONDS: Final = 60
_OPENED: Final = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.management/sun.management",
)
_METADATA: Final = "org.apache.pulsar.metadata.bookkeeper"


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory limits of a JVM in MB: heap at the start, maximum heap, direct memory."""

    initial: int
    heap: int
    direct: int


STANDALONE: Final = Memory(256, HEAP_MB, DIRECT_MB)
"""Memory limits of a standalone. It starts at about 330 MB resident, and has 1.1 GB after two million messages of 1
KiB, many of them unbatched. With 512 MB of direct memory the bookie then ended ("Unable to allocate memory"), and the
broker stopped serving without it; of 1,024 MB it uses 400.

The heap grows with what the topics hold: some 5,000 loaded topics hold 470 MB. With a limit of 512 MB the broker then
spent a third of its processor time, and 24 of 57 minutes in which nothing else ran, on collections of garbage.
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` program and its version; `feature` is 17 for 17.0.15."""

    program: Path
    feature: int


def find(environ: Mapping[str, str], needed: int) -> Java:
    """Finds Java by JAVA_HOME, else in PATH, and runs `java -version`. Raises KodoctlError: K601 (no Java, or none that
    tells its version), K602 (older than `needed`).
    """
    program = _locate(environ, needed)
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own java
            [program, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired):
        raise _none(f"{program} does not run", needed) from None
    feature = parse_version(answer.stderr + answer.stdout)
    if answer.returncode != 0 or feature is None:  # macOS has a java that only says there is none
        raise _none(f"{program} does not tell its version", needed)
    if feature < needed:
        detail = f"{program} is Java {feature}; Pulsar needs {needed} or newer\n{_how_to_get(needed)}"
        raise failure("K602", "Java too old", detail)
    return Java(program, feature)


def _locate(environ: Mapping[str, str], needed: int) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        program = Path(home).absolute() / "bin" / "java"  # the broker is started in another folder
        if not program.is_file():
            raise _none(f"JAVA_HOME is {home}, and there is no bin/java in it", needed)
        return program
    found = find_program("java", environ)
    if found is None:
        raise _none("there is no `java` on the PATH, and JAVA_HOME is not set", needed)
    return Path(found)


def _none(what: str, needed: int) -> Exception:
    return failure("K601", "no Java found", f"{what}\n{_how_to_get(needed)}")


def _how_to_get(needed: int) -> str:
    return (
        f"install Java {needed} or newer (Debian, Ubuntu: apt install openjdk-{needed}-jre-headless; "
        f"macOS: brew install openjdk@{needed}), set JAVA_HOME to it, or use --engine docker"
    )


def parse_version(text: str) -> int | None:
    """Feature version in the output of `java -version`: 17 of `17.0.15`, 8 of `1.8.0_392`; None if there is none."""
    found = _VERSION.search(text)
    return int(found[1]) if found else None


def options(feature: int, scratch: Path, memory: Memory = STANDALONE, log: str = "") -> list[str]:
    """Options of the JVM, without class path and program. `scratch`: folder of its temporary files; `log`: path of its
    log file, "" for that of a standalone.

    Relative paths start at the folder of the instance or node, in which the JVM runs. Only the first compiler (C1) is
    used: ready in 8 s instead of 11 s on 2 cores, and two thirds of the processor time for the same work.
    """
    opened = [part for package in _OPENED for part in ("--add-opens", f"{package}=ALL-UNNAMED")]
    unsafe = ["--sun-misc-unsafe-memory-access=allow"] if feature >= 23 else []  # older ones refuse to start with it
    return [
        f"-Xms{memory.initial}m",
        f"-Xmx{memory.heap}m",
        f"-XX:MaxDirectMemorySize={memory.direct}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:ErrorFile=logs/crash.log",
        f"-Djava.io.tmpdir={scratch}",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *opened,
        "--enable-native-access=ALL-UNNAMED",
        *unsafe,
        "-Dlog4j2.is.webapp=false",
        "-Dlog4j.configurationFile=conf/log4j2.xml",
        *([f"-Dkodoctl.log={log}"] if log else []),
        "-Djava.util.logging.config.file=conf/logging.properties",
        "-Djute.maxbuffer=10485760",
        f"-Dbookkeeper.metadata.bookie.drivers={_METADATA}.PulsarMetadataBookieDriver",
        f"-Dbookkeeper.metadata.client.drivers={_METADATA}.PulsarMetadataClientDriver",
    ]


def class_path(jars: Sequence[Path]) -> str:
    """Value of the option `-cp`: the folder `conf`, in which Java looks for jndi.properties, and the jars."""
    return ":".join(("conf", *map(str, jars)))


def arguments(feature: int, jars: Sequence[Path], *, scratch: Path, bookie_port: int) -> list[str]:
    """All arguments of `java` for a standalone broker. They go into an argument file, because the class path alone is
    longer than some systems allow on a command line.
    """
    return [
        *options(feature, scratch),
        "-cp",
        class_path(jars),
        MAIN_CLASS,
        *("--config", "conf/standalone.conf"),
        "--no-functions-worker",
        "--no-stream-storage",
        *(
            "--metadata-url",
            "rocksdb:data/metadata",
        ),  # --metadata-dir makes a URL of the whole path: no spaces in it then
        *("--bookkeeper-dir", "data/bookkeeper"),
        *("--bookkeeper-port", str(bookie_port)),
    ]


def argument_file(parts: Sequence[str]) -> str:
    """Text of an argument file for `java @file`: one argument per line, quoted because folders may have spaces in their
    names.
    """
    quoted = [part.replace("\\", "\\\\").replace('"', '\\"') for part in parts]
    return "".join(f'"{part}"\n' for part in quoted)
