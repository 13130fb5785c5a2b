"""The end of a log, its growth, and why a broker died."""

from __future__ import annotations

import pytest

from kodoctl.dev import logs

DEATH = """\
2026-11-21 15:32:20.000 INFO  PulsarStandalone - Starting BK with RocksDb metadata store
2026-11-21 15:32:21.164 ERROR Journal - Problems reading from lastMark (this is okay if it is the first time starting)
2026-11-21 15:32:22.000 ERROR PulsarRegistrationManager - Ledger root path: /ledgers already exists
2026-11-21 15:32:23.416 ERROR PulsarService - Failed to start Pulsar service: Failed to bind on /127.0.0.1:16650
java.io.IOException: Failed to bind Pulsar broker on /127.0.0.1:16650
\tat org.apache.pulsar.broker.service.BrokerService.start(BrokerService.java:100)
\t... 12 more
Caused by: io.netty.channel.unix.Errors$NativeIoException: bind(..) failed with error(-98): Address already in use
2026-11-21 15:32:23.419 ERROR PulsarStandaloneStarter - Failed to start pulsar service.
java.io.IOException: Failed to bind Pulsar broker on /127.0.0.1:16650
2026-11-21 15:32:23.730 INFO  Executors - Starting termination handler
2026-11-21 15:32:23.737 INFO  Executors - Shutdown completed.
""".splitlines()


def test_errors_and_causes_first_each_once_then_the_end():
    assert logs.reasons(DEATH) == [
        "2026-11-21 15:32:23.416 ERROR PulsarService - Failed to start Pulsar service: Failed to bind on /127.0.0.1:16650",
        "java.io.IOException: Failed to bind Pulsar broker on /127.0.0.1:16650",
        "Caused by: io.netty.channel.unix.Errors$NativeIoException: bind(..) failed with error(-98): Address already in use",
        "2026-11-21 15:32:23.419 ERROR PulsarStandaloneStarter - Failed to start pulsar service.",
        "2026-11-21 15:32:23.730 INFO  Executors - Starting termination handler",
        "2026-11-21 15:32:23.737 INFO  Executors - Shutdown completed.",
    ]


def test_the_end_is_no_stack_trace():
    lines = ["12:00 INFO  X - last words", "12:01 ERROR X - gone", *[f"\tat a.B.c(B.java:{n})" for n in range(50)]]
    assert logs.reasons(lines) == ["12:01 ERROR X - gone", "12:00 INFO  X - last words"]


def test_without_errors_the_last_lines():
    assert logs.reasons([f"line {n}" for n in range(100)]) == [f"line {n}" for n in range(85, 100)]


def test_of_many_errors_the_first_and_the_last():
    told = logs.reasons([f"12:00 ERROR X - number {n}" for n in range(100)])
    assert len(told) == 15
    assert told[0].endswith("number 0")
    assert told[-1].endswith("number 99")


def test_what_java_itself_refuses_is_a_reason():
    said = ["Error: Could not create the Java Virtual Machine.", "Unrecognized option: --sun-misc"]
    assert logs.reasons(said) == said


def test_very_long_lines_are_cut_and_cannot_move_the_cursor():
    told = logs.reasons(["12:00 ERROR X - \x1b[2Jgone " + "x" * 5000])
    assert len(told[0]) <= 300
    assert "\x1b" not in told[0]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("Caused by: java.net.BindException: Address already in use", "quicker to take one of its ports"),
        ("RocksDBException: While lock file: data/metadata/LOCK: Resource temporarily unavailable", "data open"),
        (
            "Caused by: org.rocksdb.RocksDBException: CURRENT file corrupted",
            "give it up with `kodoctl dev reset --name x`",
        ),
        (
            "org.apache.bookkeeper.bookie.BookieException$InvalidCookieException: ",
            "put the data back, or give everything up",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "not enough memory"),
        ("Error: java.lang.UnsupportedClassVersionError: x has been compiled by", "Java is too old"),
    ],
)
def test_known_causes_have_advice(line, advice):
    assert advice in (logs.hint(["12:00 INFO  fine", line], "x") or "")


def test_unknown_causes_have_none():
    assert logs.hint(["12:00 ERROR X - no idea"], "x") is None


def test_information_about_locks_is_no_cause_when_there_is_an_error():
    lines = ["12:00 INFO  X - unable to lock is only mentioned", "12:00 ERROR X - No space left on device"]
    assert "disk is full" in (logs.hint(lines, "x") or "")


def test_failing_to_start_is_recognised_while_the_process_still_hangs():
    assert logs.gave_up(DEATH)
    assert not logs.gave_up(DEATH[:4])
    assert logs.port_taken(DEATH)
    assert not logs.port_taken(DEATH[:4])


class TestTail:
    def test_no_file(self, tmp_path):
        assert logs.tail(tmp_path / "none", 10) == []

    def test_none_asked(self, tmp_path):
        (tmp_path / "log").write_text("a\n")
        assert logs.tail(tmp_path / "log", 0) == []

    def test_fewer_than_asked(self, tmp_path):
        (tmp_path / "log").write_text("a\nb\n")
        assert logs.tail(tmp_path / "log", 10) == ["a", "b"]

    def test_empty(self, tmp_path):
        (tmp_path / "log").write_text("")
        assert logs.tail(tmp_path / "log", 10) == []

    def test_an_unfinished_last_line_counts(self, tmp_path):
        (tmp_path / "log").write_text("a\nb\nkilled in the mid")
        assert logs.tail(tmp_path / "log", 2) == ["b", "killed in the mid"]

    @pytest.mark.parametrize("count", [1, 2, 700, 5000])
    def test_the_last_lines_of_a_long_file(self, tmp_path, count):
        lines = [f"{n} {'é' * 100}" for n in range(3000)]
        (tmp_path / "log").write_text("\n".join(lines) + "\n", encoding="utf-8")
        assert logs.tail(tmp_path / "log", count) == lines[-count:]

    def test_controls_of_strangers_are_shown_not_obeyed(self, tmp_path):
        (tmp_path / "log").write_text("\tat x\x1b[31m\n")
        assert logs.tail(tmp_path / "log", 1) == ["    at x\\x1b[31m"]


class TestFollow:
    """Each step writes when the reader has nothing left, so no time is waited for."""

    def follow(self, file, *steps):
        remaining = list(steps)

        def ended():
            if not remaining:
                return True
            remaining.pop(0)()
            return False

        return list(logs.follow(file, ended=ended))

    def append(self, file, text):
        def write():
            with file.open("a") as sink:
                sink.write(text)

        return write

    def test_only_what_comes_from_now_on_whole_lines_only(self, tmp_path):
        file = tmp_path / "log"
        file.write_text("old\n")
        assert self.follow(file, self.append(file, "new\nha"), self.append(file, "lf\nopen")) == ["new", "half"]

    def test_a_file_that_does_not_exist_yet_is_read_from_its_beginning(self, tmp_path):
        file = tmp_path / "log"
        assert self.follow(file, lambda: None, self.append(file, "first\n"), lambda: None) == ["first"]

    def test_over_the_next_file_of_the_same_name(self, tmp_path):
        file = tmp_path / "log"
        file.write_text("old\n")

        def roll():
            self.append(file, "last of the old\n")()
            file.rename(tmp_path / "log.1")
            self.append(file, "first of the new\n")()

        assert self.follow(file, roll, lambda: None, lambda: None) == ["last of the old", "first of the new"]

    def test_over_an_emptied_file(self, tmp_path):
        file = tmp_path / "log"
        file.write_text("old\n" * 100)

        def make_room():
            file.write_text("")

        told = self.follow(file, make_room, self.append(file, "first after it\n"), lambda: None, lambda: None)
        assert told == ["first after it"]

    def test_an_unfinished_line_does_not_run_into_the_next_file(self, tmp_path):
        file = tmp_path / "log"
        file.write_text("old\n")

        def restart():
            file.rename(tmp_path / "log.before")
            self.append(file, "first of the new\n")()

        told = self.follow(file, self.append(file, "killed in the mid"), restart, lambda: None, lambda: None)
        assert told == ["killed in the mid", "first of the new"]
