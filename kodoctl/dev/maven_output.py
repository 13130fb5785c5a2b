"""Parser of Maven's output: the progress of a download and the reason of a failure. Pure.

Maven's lines name hosts, some of them private. So a line is printed only after addresses were removed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_DOWNLOADED: Final = re.compile(r"Downloaded from [^ ]+: \S+ \((\d+(?:\.\d+)?) (B|kB|MB|GB)(?: at|\))")
_MEGABYTES: Final = {"B": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}

_ADDRESS: Final = re.compile(r"\w+://(?:[^/\s@]*@)?([^/\s):\]]+)[^\s)\]]*")
_REPOSITORY: Final = re.compile(r"(?:from/to|from|in|access) \S+ \([^)]*://[^)]*\)")
_NUMERIC: Final = re.compile(
    r"/?\b(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[\da-f]{1,4}:){7}[\da-f]{1,4}(?:%\w+)?)\b(?::\d+)?", re.IGNORECASE
)
"""An address of IPv4, or of IPv6 as Java writes it: all eight parts."""
_HELP: Final = re.compile(r"\s*(->)? ?\[Help \d+\]|Re-run Maven|To see the full stack trace|For more information about")
_LINE_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class MavenFailure:
    """A known reason for which Maven fails. `pattern`: recognises it in Maven's output; `why`: text of the reason;
    `what_to_do`: advice.
    """

    pattern: re.Pattern[str]
    why: str
    what_to_do: str


def _cause(pattern: str, why: str, what_to_do: str) -> MavenFailure:
    return MavenFailure(re.compile(pattern, re.IGNORECASE), why, what_to_do)


_AGAIN: Final = "run the command again: what is already fetched is kept"
FULL: Final = _cause(
    "no space left on device|disk quota exceeded", "the disk is full", "make room there, then " + _AGAIN
)
_CAUSES: Final = (
    FULL,
    _cause(
        "JAVA_HOME.*not defined correctly",
        "Maven does not find Java where JAVA_HOME says",
        "set JAVA_HOME to a folder with bin/java in it, or unset it",
    ),
    _cause(
        "offline mode|has not been downloaded from it before",
        "Maven is told to work offline",
        "take -o (or <offline>) out of MAVEN_ARGS, .mvn and settings.xml for the first start",
    ),
    _cause(
        r"proxy authentication|\b407\b",
        "the proxy wants a user and a password",
        "put them into the <proxies> of Maven's settings.xml",
    ),
    _cause(
        "PKIX path|certificate|SSLHandshake|unable to find valid certification",
        "the repository's certificate is not trusted by Java; often a company proxy that opens TLS",
        "add its certificate to Java's trust store, or name a mirror in Maven's settings.xml",
    ),
    _cause(
        r"status code: 40[13]|status: 40[13]|\b40[13] (unauthorized|forbidden)|not authorized|access denied",
        "the Maven repository refuses us",
        "check the <servers> and <mirrors> of Maven's settings.xml",
    ),
    _cause(
        "unknown ?host|name or service not known|temporary failure in name resolution|nodename nor servname"
        "|no route to host|network is unreachable|connection refused|connection reset|timed out|connect to .* failed"
        "|could not transfer",
        "the Maven repository cannot be reached: no network, or a proxy Maven does not know",
        "check the network; behind a proxy, name it in the <proxies> of Maven's settings.xml; then " + _AGAIN,
    ),
    _cause("checksum validation failed", "something was damaged on its way", _AGAIN),
    _cause(
        r"could not find artifact|non-resolvable import pom",
        "the Maven repository does not have this version of Pulsar, or not all of its parts",
        "choose --version 4.2 or 4.0",
    ),
    _cause("permission denied|read-only file system|accessdenied", "a folder of Maven's cannot be written", _AGAIN),
)
_OTHER: Final = _cause("", "Maven failed", "read the full log, put it right, then " + _AGAIN)


def downloaded_megabytes(line: str) -> float:
    """Megabytes of the file that this line of Maven reports as downloaded; 0 for any other line."""
    found = _DOWNLOADED.search(_COLOUR.sub("", line))
    return float(found[1]) * _MEGABYTES[found[2]] if found else 0.0


def explain(lines: Sequence[str]) -> tuple[MavenFailure, str]:
    """Finds the reason why Maven failed in the lines of its output. Returns (reason, line): a known reason and the
    first line that shows it; else a general reason and the first line that reports an error, "" if there is none. The
    line has no addresses (see `without_addresses`).
    """
    plain = [_COLOUR.sub("", line).strip() for line in lines]
    errors = [line for line in plain if re.search(r"ERROR|Exception|JAVA_HOME|[Nn]o space", line)] or plain[-5:]
    for cause in _CAUSES:
        line = next((line for line in errors if cause.pattern.search(line)), None)
        if line is not None:
            return cause, without_addresses(line, plain)
    first = next((line for line in errors if line and not _HELP.match(line)), "")
    return _OTHER, without_addresses(first, plain)


def without_addresses(line: str, context: Sequence[str]) -> str:
    """Returns a line of Maven without addresses: URLs, names of repositories, and numeric addresses are removed or
    become `…`, and so do the hosts of all URLs in the line and in `context`, the other lines of the output. The result
    has at most 300 characters, and an `…` if it was cut.
    """
    hosts = {host for text in (*context, line) for host in _ADDRESS.findall(text)}
    short = _REPOSITORY.sub("", _ADDRESS.sub("…", _REPOSITORY.sub("", line)))
    for host in sorted(hosts, key=len, reverse=True):
        short = re.sub(rf"{re.escape(host)}(:\d+)?", "…", short)
    short = _HELP.sub("", _NUMERIC.sub("…", short)).removeprefix("[ERROR]").strip()
    short = re.sub(r"\s+", " ", short)
    return short if len(short) <= _LINE_LENGTH else f"{short[:_LINE_LENGTH]}…"
