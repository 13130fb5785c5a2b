"""Tokens: signed with the instance's own key, readable by its owner only."""

from __future__ import annotations

import errno
from dataclasses import replace

import jwt
import pytest

from kodoctl.dev import tokens
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance
from kodoctl.dev.ports import Ports
from kodoctl.errors import KodoctlError, UsageError

INSTANCE = Instance("two", "4.2.4", EngineName.JAVA, Auth.TOKEN, Ports())


@pytest.fixture
def folder(tmp_path):
    return Homes(tmp_path, tmp_path).folder("two")


def test_a_token_says_its_role_and_is_signed_with_the_key(folder):
    token = tokens.token(folder, INSTANCE, "planner").reveal()
    assert jwt.decode(token, folder.key.read_bytes(), algorithms=["HS256"]) == {"sub": "planner"}
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, b"x" * 32, algorithms=["HS256"])


def test_the_key_is_made_once_and_private(folder):
    key = tokens.ensure_key(folder)
    assert len(key) == 32
    assert tokens.ensure_key(folder) == key
    assert folder.key.stat().st_mode & 0o777 == 0o600


def test_the_same_token_each_time(folder):
    assert tokens.token(folder, INSTANCE, "x") == tokens.token(folder, INSTANCE, "x")


def test_files_for_our_roles_are_private(folder):
    tokens.write_tokens(folder)
    key = folder.key.read_bytes()
    assert {file.name for file in folder.tokens.iterdir()} == {"admin", "applier", "planner", "consumer", "producer"}
    for file in folder.tokens.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
        assert jwt.decode(file.read_text(), key, algorithms=["HS256"]) == {"sub": file.name}


def test_a_damaged_key_is_said_not_used(folder):
    tokens.ensure_key(folder)
    folder.key.write_bytes(b"short")
    with pytest.raises(KodoctlError, match=r"K621.*signing key is damaged"):
        tokens.token(folder, INSTANCE, "planner")


@pytest.mark.parametrize("role", ["", " ", "a\nb", "\x1b[2J", "x" * 201])
def test_roles_no_broker_could_know(role):
    with pytest.raises(UsageError, match=r"K622"):
        tokens.mint(b"k" * 32, role)


def test_without_authentication_there_are_none_and_it_says_how_to_get_them(folder):
    with pytest.raises(KodoctlError, match=r"K616.*`kodoctl dev up --auth token --name two`"):
        tokens.token(folder, replace(INSTANCE, auth=Auth.NONE), "planner")
    assert not folder.key.exists()


def test_a_key_that_could_not_be_written_is_made_the_next_time(folder, monkeypatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    for end in (full, killed):
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", end)
            patch.setattr("secrets.token_bytes", lambda _: b"part")
            with pytest.raises((OSError, KeyboardInterrupt)):
                tokens.ensure_key(folder)
    assert len(tokens.ensure_key(folder)) == 32
