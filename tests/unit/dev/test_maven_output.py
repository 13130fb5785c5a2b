"""Maven's lines: how far, and why not."""

from __future__ import annotations

import pytest

from kodoctl.dev.maven_output import downloaded_megabytes, explain, without_addresses

URL = "https://repo.example.org/maven2"


@pytest.mark.parametrize(
    ("line", "megabytes"),
    [
        (f"[INFO] Downloaded from central: {URL}/a/a-1.pom (3.0 kB at 23 kB/s)", 0.003),
        (f"[INFO] Downloaded from corp-mirror: {URL}/r/rocksdbjni-7.9.2.jar (58 MB at 9.9 MB/s)", 58),
        (f"\x1b[1mDownloaded\x1b[m from central: {URL}/a.jar (1.2 GB at 1 MB/s)", 0),
        (f"\x1b[1;34m[INFO]\x1b[m Downloaded from central: {URL}/a.pom (524 B at 10 kB/s)", 0.000524),
        (f"[INFO] Downloaded from central: {URL}/a.pom (524 B)", 0.000524),
        (f"[INFO] Downloading from central: {URL}/a.jar", 0),
        ("[INFO] BUILD SUCCESS", 0),
        ("", 0),
    ],
)
def test_megabytes_of_a_line(line, megabytes):
    if "Downloaded\x1b" in line:
        megabytes = 1200  # colours do not matter
    assert downloaded_megabytes(line) == pytest.approx(megabytes)


START = "[ERROR] Failed to execute goal on project dev-broker: Could not resolve dependencies: "
CASES = {
    "unknown host": (
        (
            f"{START}Could not transfer artifact org.apache.pulsar:pulsar:pom:4.2.4 from/to central ({URL}): repo.example.org: "
            "Temporary failure in name resolution -> [Help 1]"
        ),
        "cannot be reached",
        "Could not transfer artifact org.apache.pulsar:pulsar:pom:4.2.4 : …: Temporary failure in name resolution",
    ),
    "unknown host, old words": (
        (
            f"[ERROR] Non-resolvable import POM: Could not transfer artifact a:b:pom:1 from/to corp ({URL}): "
            "Unknown host repo.example.org @ line 11, column 19"
        ),
        "cannot be reached",
        "Unknown host …",
    ),
    "refused": (
        (
            f"{START}Could not transfer artifact a:b:jar:1 from/to corp ({URL}): Connect to repo.example.org:443 "
            "[repo.example.org/10.1.2.3] failed: Connection refused (Connection refused)"
        ),
        "cannot be reached",
        "Connect to … [……] failed: Connection refused",
    ),
    "offline": (
        (
            f"[ERROR] Cannot access corp-secret ({URL}) in offline mode and the artifact a:b:pom:1 has not been downloaded "
            "from it before."
        ),
        "told to work offline",
        "in offline mode",
    ),
    "proxy": (
        f"{START}authentication failed for {URL}/a.pom, status: 407 Proxy Authentication Required",
        "proxy wants a user",
        "status: 407",
    ),
    "certificate": (
        f"{START}transfer failed for {URL}/a.pom: PKIX path building failed: unable to find valid certification path",
        "certificate is not trusted",
        "PKIX path building failed",
    ),
    "refuses": (
        f"{START}Could not transfer artifact a:b:pom:1 from/to corp ({URL}): status code: 403, reason phrase: Forbidden",
        "refuses us",
        "status code: 403",
    ),
    "no such version": (
        f"{START}Could not find artifact org.apache.pulsar:pulsar-broker:jar:4.9.9 in central ({URL})",
        "does not have this version",
        "pulsar-broker:jar:4.9.9",
    ),
    "full": ("[ERROR] Failed: java.io.IOException: No space left on device", "disk is full", "No space left on device"),
    "quota": (f"{START}Disk quota exceeded", "disk is full", "quota exceeded"),
    "checksum": (
        f"{START}Checksum validation failed, expected 1 but is 2",
        "damaged on its way",
        "Checksum validation failed",
    ),
    "java home": (
        "The JAVA_HOME environment variable is not defined correctly,",
        "does not find Java where JAVA_HOME says",
        "JAVA_HOME",
    ),
    "read-only": (f"{START}/m2/a.pom (Read-only file system)", "cannot be written", "Read-only file system"),
    "unheard of": ("[ERROR] Plugin went to lunch -> [Help 1]", "Maven failed", "Plugin went to lunch"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_cause_in_our_words_and_the_line_without_addresses(case):
    line, why, quoted = case
    cause, shown = explain(["[INFO] Scanning for projects...", line, "[ERROR] Re-run Maven using the -X switch"])
    assert why in cause.why
    assert quoted in shown
    assert cause.what_to_do
    for secret in ("example.org", "10.1.2.3", "corp", "://", "[Help", "[ERROR]"):
        assert secret not in shown


def test_the_worse_cause_wins_over_what_follows_from_it():
    lines = [
        "[ERROR] Could not transfer artifact a:b:jar:1: transfer failed",
        "[ERROR] java.io.IOException: No space left on device",
    ]
    assert "disk is full" in explain(lines)[0].why


def test_nothing_said_at_all():
    cause, shown = explain([])
    assert cause.why == "Maven failed"
    assert shown == ""


def test_users_in_addresses_are_never_shown():
    shown = without_addresses("failed: https://user:secret@repo.example.org/x and repo.example.org", [])
    assert "secret" not in shown
    assert "example" not in shown


def test_addresses_of_version_6_are_never_shown():
    line = "Connect to repo.example.org:443 [repo.example.org/fd00:1:0:0:0:0:0:2a%eth0] at 12:30:45 failed"
    shown = without_addresses(line, [f"Downloading {URL}/a.jar"])
    assert shown == "Connect to … [……] at 12:30:45 failed"


def test_a_very_long_line_is_cut():
    assert len(without_addresses("x" * 5000, [])) < 400
