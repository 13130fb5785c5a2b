"""What may be read on behalf of a file: nothing outside of the repository that it lies in, links followed.

Else a pull request could have any file of the machine that plans it read, and told of in a finding. Files that lie in no
repository may name what they like: whoever runs kodoctl there wrote them, or mounted them.
"""

from __future__ import annotations

from os.path import normpath, realpath
from pathlib import Path


def leaves(folder: Path, path: Path) -> str | None:
    """Why `path` is not to be read for a file in `folder`; None where it may be."""
    here = Path(normpath(Path.cwd() / folder))  # as it is named: a link to another place does not choose the repository
    top = next((one for one in (here, *here.parents) if (one / ".git").exists()), None)
    if top is None or Path(realpath(path)).is_relative_to(realpath(top)):
        return None
    return f"it lies outside of the repository {top}, links followed, and is not read: keep it where it is reviewed"
