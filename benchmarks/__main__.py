"""`python -m benchmarks [FOLDER | FOLDER/PROGRAM ...]`: measures one after the other; without a name, lint, startup,
plan_apply, consumer and outbox, which need one broker (`kodoctl dev up --use`).

Each program writes its own raw figures and has options of its own: `python benchmarks/FOLDER/PROGRAM.py --help`. The others run
after one that fails; the exit code is 1 then.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
USUAL = ("lint", "startup", "plan_apply", "consumer", "outbox")
# They need a binary and a provider; a folder that audit.py makes; hours, for it runs the others (make bench-consumer).
OTHER_NEEDS = ("plan_apply/terraform", "pipeline/peers", "consumer/bars")


def programs() -> dict[str, Path]:
    """Every program in the order of its name, FOLDER/PROGRAM."""
    files = sorted(one for one in HERE.glob("*/*.py") if '__name__ == "__main__"' in one.read_text("utf-8"))
    return {f"{one.parent.name}/{one.stem}": one for one in files}


def main(names: list[str]) -> int:
    known = programs()
    chosen = {
        name: path
        for name, path in known.items()
        if name in names or (name.partition("/")[0] in (names or USUAL) and name not in OTHER_NEEDS)
    }
    if unknown := [one for one in names if not any(name == one or name.startswith(f"{one}/") for name in known)]:
        print(f"no benchmark is named {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name, path in chosen.items():
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, path], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
