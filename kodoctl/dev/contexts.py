"""Context of an instance in the user's configuration file. A context that `kodoctl dev` did not write is never changed."""

from __future__ import annotations

from pathlib import Path

from kodoctl.dev.dev_errors import failure
from kodoctl.dev.instance import Auth, Folder, Instance
from kodoctl.dev.ports import HOST
from kodoctl.dev.tokens import token_file
from kodoctl.pulsar.connection.addresses import NO_WORKERS, split
from kodoctl.pulsar.connection.connection import Context, in_file, remove_context, use_context, write_context

TOKEN_ROLE = "applier"  # noqa: S105
"""The role whose token the context uses: it may do everything that kodoctl does."""


def is_foreign(context: Context | None) -> bool:
    """True if `write` did not make the context as it is: it has another host, or a key that `write` does not set
    (`env`, `protected`, TLS, OAuth2), or lacks the one about function workers. 127.0.0.1 alone proves nothing, because
    it may be the end of a tunnel to another cluster. False for None.
    """
    if context is None:
        return False
    here = all(url.startswith(f"http://{HOST}:") for url in split(context.admin_url))
    plain = context.env is None and not context.protected and context.access.keys() <= {"token_file"}
    return not (here and plain and context.function_worker == NO_WORKERS)


def check_usable(file: Path, name: str) -> None:
    """Raises KodoctlError (K617) if somebody made the context `name` in the file, as `is_foreign` says. Raises K502 or
    another KodoctlError if the file cannot be read.
    """
    context = in_file(file, name)
    if context is not None and is_foreign(context):
        detail = (
            f"the context `{name}` is for {context.admin_url} and stays so, because `kodoctl dev` did not write it as it"
            " is; give the instance another --name"
        )
        raise failure("K617", "context belongs to another cluster", detail, file)


def write(file: Path, instance: Instance, folder: Folder, *, use: bool) -> None:
    """Adds the instance's context to the file, or replaces it with all its keys: addresses and, if the instance has
    tokens, the token file of TOKEN_ROLE. `use`: also makes it the current one. Raises as `write_context` does.
    """
    values = {"admin_url": instance.admin_url, "broker_url": instance.broker_url, "function_worker": NO_WORKERS}
    if instance.auth is Auth.TOKEN:
        values["token_file"] = str(token_file(folder, TOKEN_ROLE))
    write_context(file, instance.name, values)
    if use:
        use_context(file, instance.name)


def remove(file: Path, instance: Instance) -> bool:
    """Removes the instance's context from the file, unless the context has another address by now. Returns True if it
    removed one.
    """
    context = in_file(file, instance.name)
    ours = context is not None and context.admin_url == instance.admin_url
    if ours:
        remove_context(file, instance.name)
    return ours
