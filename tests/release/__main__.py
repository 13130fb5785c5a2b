"""Release check: builds kodoctl and kodo-fast once, then judges and uses what was built, as `make release-check` does.

    python -m tests.release [--resolution lowest-direct] [--tag v0.1.0]

The wheel is installed in new environments from the index, with the ranges of `pyproject.toml` instead of the locks: the
newest releases, or with `--resolution lowest-direct` the oldest that are allowed. No broker is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import kodoctl

ROOT: Final = Path(__file__).resolve().parents[2]
DIST: Final = ROOT / "dist"
PACKAGES: Final = {
    "kodoctl": "kodoctl",
    "consumer/kodo_consumer": "kodo_consumer",
    "pipeline/kodo_pipeline": "kodo_pipeline",
}
PYTHONS: Final = ("3.11", "3.12", "3.13")
SECRET: Final = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{32}|\bgh[pousr]_\w{36}|\bpypi-AgE\w{16}|\bAKIA[0-9A-Z]{16}\b"
)
USES: Final = (
    "kodoctl --version",
    "kodo-consumer --version",
    "kodoctl init",
    "kodoctl lint",
    "kodoctl expand",
    "kodoctl graph",
    "kodoctl docs --out catalogue",
    "kodoctl schema --out topology.json",
)
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: Final = sorted(PROJECT["optional-dependencies"].keys() - {"fast", "spark"})
"""`fast` is another wheel; `make test-spark` installs `spark` with both resolutions."""
EXTRA_USES: Final = (
    "kodo-consumer outbox schema",
    "kodo-consumer inbox schema",
    'python -c "import deltalake, duckdb, fastavro, opentelemetry.sdk.trace, psycopg, pyarrow, starlette, uvicorn"',
)


def run(*command: str | Path, folder: Path) -> str:
    """Runs a command in `folder` and returns its output. Ends the check with the output if the command fails."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def build(folder: Path, target: Path, *kinds: str) -> list[Path]:
    """Builds archives (`wheel`, `sdist`) of the project in `folder`, and returns their paths in `target`."""
    before = {*target.glob("*")}
    run(sys.executable, "-P", "-m", "hatchling", "build", "-d", target, *(f"-t{kind}" for kind in kinds), folder=folder)
    return sorted({*target.glob("*")} - before)


def contents(archive: Path) -> dict[str, bytes]:
    """The files of a wheel or sdist by name; names of an sdist are without its first folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        files = [(member.name, sdist.extractfile(member)) for member in sdist if member.isfile()]
        return {name.partition("/")[2]: file.read() for name, file in files if file}


def tracked(*places: str) -> set[str]:
    """The files below `places` that git has."""
    return {*run("git", "ls-files", *places, folder=ROOT).splitlines()}


def difference(archive: Path, names: set[str], expected: set[str]) -> list[str]:
    """Problems where an archive does not have exactly the expected files."""
    problems = [f"{archive.name} lacks {name}" for name in sorted(expected - names)]
    return problems + [f"{archive.name} has {name}, which does not belong there" for name in sorted(names - expected)]


def judge_kodoctl(wheel: Path, sdist: Path, again: Path) -> list[str]:
    """Problems of kodoctl's archives: files, licence, and the wheel that is built `again` from the sdist."""
    source = tracked(*PACKAGES)
    info = f"kodoctl-{kodoctl.__version__}.dist-info"
    metadata = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    packaged = {
        name.replace(folder, package, 1)
        for name in source
        for folder, package in PACKAGES.items()
        if name.startswith(f"{folder}/")
    }
    problems = difference(wheel, {*contents(wheel)}, packaged | metadata)
    extra = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore", *tracked("schemas")}
    problems += difference(sdist, {*contents(sdist)}, source | extra)
    if wheel.read_bytes() != again.read_bytes():
        problems.append(f"{wheel.name} of the tree and of {sdist.name} differ")
    return problems


def judge_fast(wheel: Path, sdist: Path) -> list[str]:
    """Problems of kodo-fast's archives: its parts, whichever Python and machine they are compiled for."""
    names = {re.sub(r"\.cpython-\S+\.so$", ".so", name) for name in contents(wheel)}
    needed = {"kodo_fast/__init__.py", "kodo_fast/py.typed", "kodo_fast/_native.so"}
    problems = [f"{wheel.name} lacks {name}" for name in sorted(needed - names)]
    if not any(name.startswith("kodo_fast/core/") and name.endswith(".so") for name in names):
        problems.append(f"{wheel.name} lacks the compiled core")
    if not any(name.endswith("licenses/LICENSE") for name in names):
        problems.append(f"{wheel.name} lacks its licence")
    wanted = {"pyproject.toml", "LICENSE", "hatch_build.py", "src/kodo_fast/_native.cpp"}
    return problems + [f"{sdist.name} lacks {name}" for name in sorted(wanted - {*contents(sdist)})]


def use(python: str, wheels: list[str], resolution: str, folder: Path, uses: Sequence[str] = USES) -> str:
    """Installs wheels in a new environment of `python`, runs commands from an empty folder, and returns one line about
    that.
    """
    uv = Path(sys.executable).with_name("uv")
    bin_folder, empty = folder / "venv" / "bin", folder / "empty"
    empty.mkdir(parents=True)
    run(uv, "venv", "--quiet", "--python", python, folder / "venv", folder=folder)
    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        bin_folder / "python",
        "--resolution",
        resolution,
        *wheels,
        folder=folder,
    )
    for line in uses:
        name, *arguments = shlex.split(line)
        shown = run("env", "-u", "PYTHONPATH", bin_folder / name, *arguments, folder=empty)
        if "--version" in arguments and shown != f"{name} {kodoctl.__version__}\n":
            sys.exit(f"{line}: {shown.strip()}, built was {kodoctl.__version__}")
    return f"Python {folder.name}: installed with {resolution} releases, {len(uses)} commands run"


def list_components(python: Path) -> None:
    """Writes a CycloneDX document of the packages in the environment of `python` into `DIST`. Ends the check if the
    document does not fit the schema of CycloneDX, or lacks kodo-fast or one of two dependencies of kodoctl.
    """
    file = DIST / f"kodoctl-{kodoctl.__version__}.cdx.json"
    tool = (sys.executable, "-P", "-m", "cyclonedx_py", "environment", "--validate", "--output-reproducible")
    run(*tool, "--pyproject", ROOT / "pyproject.toml", "--output-file", file, python, folder=ROOT)
    names = {component["name"] for component in json.loads(file.read_bytes())["components"]}
    if missing := {"pydantic", "pulsar-client", "kodo-fast"} - names:
        sys.exit(f"{file.name} lacks {', '.join(sorted(missing))}")
    print(f"{file.name}: {len(names)} components")


def can_run(program: str) -> bool:
    """True if a program is on the PATH and runs; a version manager may have a stub that only fails."""
    return (
        bool(shutil.which(program)) and not subprocess.run([program, "-V"], capture_output=True, check=False).returncode
    )


def main() -> None:
    """Builds, judges and uses the archives. Exit code 1 with the problems, if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.release")
    parser.add_argument("--resolution", choices=("highest", "lowest-direct"), default="highest")
    parser.add_argument("--tag", default="", help="of the release; it must be v and the version in the code")
    options = parser.parse_args()
    resolution = options.resolution
    if options.tag and options.tag != f"v{kodoctl.__version__}":
        sys.exit(f"the tag is {options.tag}, and the code says {kodoctl.__version__}: set kodoctl/__init__.py first")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    sdist, wheel = sorted(build(ROOT, DIST, "sdist", "wheel"), key=lambda one: one.suffix == ".whl")
    fast_sdist, fast_wheel = sorted(build(ROOT / "fast", DIST, "sdist", "wheel"), key=lambda one: one.suffix == ".whl")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run("tar", "-xzf", sdist, "--strip-components=1", folder=folder)
        [again] = build(folder, folder / "again", "wheel")
        problems = judge_kodoctl(wheel, sdist, again) + judge_fast(fast_wheel, fast_sdist)
        archives = [wheel, sdist, fast_wheel, fast_sdist]
        for archive in archives:
            problems += [
                f"{archive.name}: {file} has a secret"
                for file, data in contents(archive).items()
                if SECRET.search(data)
            ]
        if problems:
            sys.exit("\n".join(problems))
        print(run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *archives, folder=ROOT), end="")
        this = f"{sys.version_info.major}.{sys.version_info.minor}"
        for python in PYTHONS:
            if python != this and not can_run(f"python{python}"):
                print(f"Python {python} does not run on this machine: the workflow `check` has it")
                continue
            wheels = [str(wheel), str(fast_wheel)] if python == this else [str(wheel)]
            print(use(sys.executable if python == this else f"python{python}", wheels, resolution, folder / python))
        every = folder / f"{this} with extras"
        print(use(sys.executable, [f"{wheel}[{','.join(EXTRAS)}]"], resolution, every, (*USES, *EXTRA_USES)))
        list_components(folder / this / "venv" / "bin" / "python")


if __name__ == "__main__":
    main()
