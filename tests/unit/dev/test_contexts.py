"""The context an instance leaves, and those it leaves alone."""

from __future__ import annotations

import pytest

from kodoctl.dev import contexts
from kodoctl.dev.instance import Auth, EngineName, Homes, Instance
from kodoctl.dev.ports import Ports
from kodoctl.errors import KodoctlError
from kodoctl.pulsar.connection.connection import read_contexts

OPEN = Instance("dev", "4.2.4", EngineName.JAVA, Auth.NONE, Ports(8080, 6650, 3181))
CLOSED = Instance("dev", "4.2.4", EngineName.JAVA, Auth.TOKEN, Ports(8080, 6650, 3181))
OTHERS = """# mine
current = "prod"

[contexts.prod]
admin_url = "https://pulsar.example.com"  # keep
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kodoctl.toml"


@pytest.fixture
def folder(tmp_path):
    return Homes(tmp_path, tmp_path).folder("dev")


def all_in(file):
    return read_contexts({"KODOCTL_CONFIG": str(file)}, file.parent)


def test_it_is_there_but_not_current(file, folder):
    file.write_text(OTHERS)
    contexts.write(file, OPEN, folder, use=False)
    found = all_in(file)
    assert found.current == "prod"
    assert found.get("dev").admin_url == "http://127.0.0.1:8080"
    assert found.get("dev").broker_url == "pulsar://127.0.0.1:6650"
    assert found.get("dev").access == {}
    assert found.get("dev").function_worker == "none"
    assert file.read_text().startswith(OTHERS.strip())


def test_current_when_asked(file, folder):
    contexts.write(file, OPEN, folder, use=True)
    assert all_in(file).current == "dev"


def test_with_tokens_it_uses_the_appliers(file, folder):
    contexts.write(file, CLOSED, folder, use=False)
    assert all_in(file).get("dev").access == {"token_file": str(folder.tokens / "applier")}


def test_authentication_switched_off_takes_the_token_out(file, folder):
    contexts.write(file, CLOSED, folder, use=False)
    contexts.write(file, OPEN, folder, use=False)
    assert all_in(file).get("dev").access == {}


@pytest.mark.parametrize(
    "lines",
    [
        'admin_url = "https://pulsar.example.com"\nfunction_worker = "none"',
        'admin_url = "http://127.0.0.1:8080"',
        'admin_url = "http://127.0.0.1:8080"\nfunction_worker = "none"\nprotected = true',
        'admin_url = "http://127.0.0.1:8080"\nfunction_worker = "none"\nenv = "prod"',
        'admin_url = "http://127.0.0.1:8080"\nfunction_worker = "none"\ntls_ca = "ca.pem"',
    ],
)
def test_a_context_for_another_cluster_is_never_overwritten(file, lines):
    """Nor one for the end of a tunnel."""
    file.write_text(f"[contexts.dev]\n{lines}\n")
    with pytest.raises(KodoctlError, match=r"K617.*for http.*and stays so.*another --name"):
        contexts.check_usable(file, "dev")


def test_our_own_from_last_time_is(file, folder):
    contexts.write(file, OPEN, folder, use=False)
    contexts.check_usable(file, "dev")
    contexts.check_usable(file, "another")
    contexts.check_usable(file.with_name("none.toml"), "dev")


def test_removed_with_what_made_it_current(file, folder):
    file.write_text(OTHERS)
    contexts.write(file, OPEN, folder, use=True)
    assert contexts.remove(file, OPEN)
    assert list(all_in(file).by_name) == ["prod"]
    assert all_in(file).current is None


def test_not_removed_when_it_means_something_else_by_now(file):
    file.write_text('[contexts.dev]\nadmin_url = "http://127.0.0.1:9999"\n')
    assert not contexts.remove(file, OPEN)
    assert "dev" in all_in(file).by_name
    assert not contexts.remove(file.with_name("none.toml"), OPEN)
