"""Commands that check and rewrite topology files: lint, fmt, schema, init. They need no cluster."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kodoctl.cli.common.console import (
    Paths,
    RuleFiles,
    command,
    finish,
    is_screen,
    judging,
    paths_or_default,
    reading,
    report,
    say,
    tell,
    write_output,
)
from kodoctl.errors import ExitCode, UsageError, error
from kodoctl.text.formatting import many

if TYPE_CHECKING:
    from kodoctl.topology.lint.linter import LintReport
    from kodoctl.topology.loaded_topology import SourceFile


class LintFormat(StrEnum):
    """Formats in which lint findings are printed: text, JSON, SARIF, annotations of a GitHub job, or a Code Quality
    report of GitLab.
    """

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    GITLAB = "gitlab"


class FileKind(StrEnum):
    """Kinds of files whose JSON Schema `schema` prints."""

    TOPOLOGY = "topology"
    RULES = "rules"


class TopologyShape(StrEnum):
    """The five shapes of a topology that `init` can write, from the smallest to the largest."""

    SIMPLEST = "simplest"
    SIMPLE = "simple"
    SINGLE = "single"
    BACKUP = "backup"
    DOUBLE = "double"


Output = Annotated[str | None, typer.Option("-o", "--out", metavar="FILE", help="Write there instead of printing.")]


@judging
def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            help="Topology files, or folders of them; - is standard input.", show_default="topologies/", metavar="PATH"
        ),
    ] = None,
    output: Annotated[LintFormat, typer.Option("--format", help="How findings are printed.")] = LintFormat.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="REF",
            help="Compare payload schemas with those of a git revision, whose team rules judge as well.",
        ),
    ] = None,
    rules: RuleFiles = None,
) -> None:
    """Check topology files: every finding at once, with its place.

    The base and every environment are checked. Exit code 1 when an error is found that no comment
    allows (`# kodoctl: allow K203 because …`). Rules of kodoctl-rules.yaml, which lies beside the
    topologies or above them in the repository, judge as well.

    Example: kodoctl lint --strict --against origin/main
    """
    from kodoctl.cli.common.team_rules_files import team_rules
    from kodoctl.topology.lint.linter import lint as run

    files, typed = _read_for_lint(paths_or_default(paths))
    earlier = None
    if against is not None:
        from kodoctl.cli.common.git import earlier_payloads

        if typed is not None:
            raise UsageError(error("K024", "unknown git revision", "standard input has no revisions: name the file"))
        earlier = earlier_payloads(files, against)
    result = run(files, earlier, team_rules(files, rules, against))
    if output is LintFormat.TEXT and is_screen():
        _show_excerpts(result, typed)
    else:
        from kodoctl.render.findings import RENDERERS

        say(RENDERERS[output.value](result))
    if result.failed or (strict and result.warned):
        finish(ExitCode.ERROR)


def _read_for_lint(paths: list[str]) -> tuple[list[SourceFile], bytes | None]:
    """Returns the files, and the bytes of standard input if a path is `-`; None: no path is."""
    from kodoctl.topology.load import STANDARD_INPUT, read_files, typed_source

    others = [path for path in paths if path != STANDARD_INPUT]
    if len(others) == len(paths):
        return read_files(paths), None
    data = sys.stdin.buffer.read()
    return [typed_source(data), *read_files(others)], data


def _show_excerpts(result: LintReport, typed: bytes | None) -> None:
    """Prints the findings, each with its line of the file. `typed`: the bytes of standard input, None: not read."""
    from kodoctl.cli.common.console import columns
    from kodoctl.cli.common.terminal import show_lines
    from kodoctl.render.finding_excerpts import excerpt_lines
    from kodoctl.topology.load import STANDARD_INPUT

    @cache
    def lines_of(file: str) -> list[str]:
        try:
            data = typed if file == STANDARD_INPUT and typed is not None else Path(file).read_bytes()
        except OSError:
            return []
        return data.decode("utf-8-sig", errors="replace").splitlines()

    show_lines(excerpt_lines(result, lines_of, columns()))


@command
def fmt(
    paths: Paths = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; list the files, exit 1 if any.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; show what would change.")] = False,
) -> None:
    """Put keys in one order and indentation at two; comments stay.

    Comments, blank lines and quotes stay; comments move with the key below them. The data of a
    file never changes: a file that could not be read back the same is refused. Files with errors
    are reported and left alone.

    Example: kodoctl fmt --check topologies/
    """
    from kodoctl.cli.common.file_rewrite import Formatted, RewriteRefusal, format_file, replace_file
    from kodoctl.topology.load import read_files

    results = [format_file(file) for file in read_files(paths_or_default(paths))]
    refusals = [result for result in results if isinstance(result, RewriteRefusal)]
    for refusal in refusals:
        report(refusal.findings)
    changed = [result for result in results if isinstance(result, Formatted) and result.before != result.after]
    for result in changed:
        if diff:
            say(result.diff())
        elif check:
            say(f"{result.name} would change")
        else:
            replace_file(result.path, result.after)
            say(f"{result.name} formatted")
    would = "would change" if check or diff else "formatted"
    tell(f"{many(len(results), 'file')}: {len(changed)} {would}, {len(refusals)} left alone.")
    if refusals or (check and changed):
        finish(ExitCode.ERROR)


@command
def init(
    file: Annotated[str | None, typer.Argument(help="The file to write.", show_default="topologies/NAME.yaml")] = None,
    shape: Annotated[
        TopologyShape, typer.Option("--shape", help="How much a message's life needs.")
    ] = TopologyShape.SINGLE,
    name: Annotated[str | None, typer.Option("--name", help="Name of the topology and its namespace.")] = None,
) -> None:
    """Write a commented example and the schema for editors.

    Never overwrites a file.

    \b
    simplest  ready only: what fails stays where it is
    simple    + retrying and dead letters
    single    + pending (over a rate) and blocking (over a quota)
    backup    + a backup level, the last stop before dead letters
    double    + a second, higher level

    Example: kodoctl init --name trade --shape double
    """  # noqa: D301  # \b keeps the lines below it apart
    from kodoctl.cli.topology.editor_schema import editor_schema
    from kodoctl.topology.example import example
    from kodoctl.topology.names import InvalidNameError

    chosen = name or (Path(file).stem if file else "example")
    path = Path(file) if file else Path("topologies") / f"{chosen}.yaml"
    schema = editor_schema(path)
    try:
        text = example(chosen, shape.value, schema.line)
    except InvalidNameError as problem:
        raise UsageError(error("K101", "name that Pulsar refuses or that would be ambiguous", str(problem))) from None
    if os.path.lexists(path):
        detail = f"{path} is there already and stays as it is: name another file, or remove it"
        raise UsageError(error("K021", "file exists", detail))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as problem:
        raise UsageError(error("K020", "cannot write file", f"{path}: {problem.strerror}")) from None
    schema.write()
    import shlex

    quoted = shlex.quote(str(path))
    say(f"{path} written. Next:\n  kodoctl lint {quoted}\n  kodoctl expand {quoted}")


@reading
def schema(
    kind: Annotated[FileKind, typer.Argument(help="Topology files, or kodoctl-rules.yaml.")] = FileKind.TOPOLOGY,
    output: Output = None,
) -> None:
    """Print the JSON Schema of a file, for editors.

    `init` and `import` write the schema file and add a line such as this, by which editors find it:

    \b
    # yaml-language-server: $schema=../schemas/topology.v1.json

    Example: kodoctl schema --out schemas/topology.v1.json
    """  # noqa: D301  # \b keeps the line below it apart
    from kodoctl.cli.common.plan_files import check_replaceable

    if kind is FileKind.RULES:
        from kodoctl.topology.json_schema.rules_schema import rules_schema_text as schema_text
    else:
        from kodoctl.topology.json_schema.file_schema import schema_text

    if output is not None:
        check_replaceable(output)
    write_output(schema_text(), output)
