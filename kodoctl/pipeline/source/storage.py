"""Small files beside the tables (manifests, coverage) in a folder or an object store, through Arrow's file systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Self

from kodoctl.errors import KodoctlError, error

_ALIASES: Final = {
    "s3a://": "s3://",
    "s3n://": "s3://",
    "gcs://": "gs://",
}  # Spark's words for what Arrow calls otherwise


class Storage:
    """A folder. `uri` is what Spark takes: a path made absolute, or a URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/") if "://" in uri else str(Path(uri).expanduser().absolute())
        self.local = Path(self.uri.removeprefix("file://")) if self.uri.startswith(("/", "file://")) else None
        self._opened: tuple[Any, str] | None = None

    def __truediv__(self, name: str) -> Self:
        return type(self)(f"{self.uri}/{name}")

    def _fs(self) -> tuple[Any, str]:
        if self._opened is None:
            from pyarrow import fs

            known = next(
                (self.uri.replace(old, new, 1) for old, new in _ALIASES.items() if self.uri.startswith(old)), self.uri
            )
            try:
                self._opened = fs.FileSystem.from_uri(known)
            except (ValueError, OSError) as problem:
                raise KodoctlError(error("K573", "the landing cannot be used", f"{self.uri}: {problem}")) from None
        return self._opened

    def write(self, name: str, document: object) -> None:
        """A JSON document, complete or not at all. Raises KodoctlError."""
        system, base = self._fs()
        data = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
        try:
            if self.local is None:
                with system.open_output_stream(f"{base}/{name}") as out:  # stores show an object when it is whole
                    out.write(data)
                return
            self.local.mkdir(parents=True, exist_ok=True)
            scratch = self.local / f".{name}.new"
            scratch.write_bytes(data)
            scratch.replace(self.local / name)
        except OSError as problem:
            raise KodoctlError(error("K573", "the landing cannot be used", f"{self.uri}/{name}: {problem}")) from None

    def documents(self) -> dict[str, Any]:
        """Every JSON document of the folder by its name, in order of names; none where there is no such folder."""
        from pyarrow import fs

        system, base = self._fs()
        try:
            found = system.get_file_info(fs.FileSelector(base, allow_not_found=True))
            names = sorted(info.base_name for info in found if info.base_name.endswith(".json"))
            return {name: json.loads(self._read(system, f"{base}/{name}")) for name in names}
        except (OSError, ValueError) as problem:
            raise KodoctlError(error("K573", "the landing cannot be used", f"{self.uri}: {problem}")) from None

    @staticmethod
    def _read(system: Any, path: str) -> bytes:
        with system.open_input_stream(path) as file:
            return bytes(file.read())

    def output(self, name: str) -> Any:
        """A file to write bytes to; a context manager."""
        system, base = self._fs()
        system.create_dir(base)
        return system.open_output_stream(f"{base}/{name}")

    def folders(self) -> list[str]:
        """Names of the folders in it."""
        from pyarrow import fs

        system, base = self._fs()
        found = system.get_file_info(fs.FileSelector(base, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def exists(self) -> bool:
        """Whether something is there."""
        from pyarrow import fs

        system, base = self._fs()
        return bool(system.get_file_info(base).type != fs.FileType.NotFound)

    def remove(self) -> None:
        """The folder with everything in it; no fault if it is not there."""
        if self.exists():
            system, base = self._fs()
            system.delete_dir(base)
