"""A real object store for tests, which speaks S3 on this machine: moto's server, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from pyarrow import fs

from tests.ports import unusual_ports
from tests.support import eventually

BUCKET = "kodo"


@dataclass(frozen=True)
class ObjectStore:
    """One with an empty bucket."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """How anybody finds it and gets in."""
        return {
            "AWS_ACCESS_KEY_ID": "kodo", "AWS_SECRET_ACCESS_KEY": "kodo-secret", "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }  # fmt: skip

    def opened(self) -> Any:
        """As somebody without kodoctl sees it."""
        return fs.S3FileSystem(
            access_key="kodo", secret_key="kodo-secret", region="us-east-1", allow_bucket_creation=True,
            endpoint_override=self.url.removeprefix("http://"), scheme="http",
        )  # fmt: skip

    def names(self, folder: str = "") -> list[str]:
        """Every object below a folder of the bucket."""
        base = f"{BUCKET}/{folder}".rstrip("/")
        found = self.opened().get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
        return sorted(one.path.removeprefix(f"{BUCKET}/") for one in found if one.type == fs.FileType.File)


@contextmanager
def object_store(log: Path) -> Iterator[ObjectStore]:
    """Started, and ended with everything in it."""
    port = unusual_ports().broker
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ}) as process:
        try:
            store = ObjectStore(f"http://127.0.0.1:{port}")
            eventually(lambda: _answers(store.url), within=60, every=0.2)
            store.opened().create_dir(BUCKET)
            yield store
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/moto-api/", timeout=2).ok
    except requests.RequestException:
        return False
