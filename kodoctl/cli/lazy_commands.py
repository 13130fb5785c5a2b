"""Lazy commands: listed by name and summary; a command's module is imported only when the command runs.

Help, usage errors and shell completion of a group need only names and summaries. The modules of commands import many
libraries, so that importing all of them takes longer than most commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final, cast, get_args

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from kodoctl.cli.common.extension_points import load


class LazyCommand(TyperCommand):
    """Command of which only name and summary are known until it runs. `target`: the command's function, as MODULE:NAME;
    `summary`: the first sentence of its docstring.
    """

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self.target = target

    def load(self) -> Any:  # typer exports no type of commands
        """Imports the command's module, and returns the command with its options."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(self.name, cls=_Command)(load(self.target))
        return typer.main.get_command(app)


class LazyGroup(TyperGroup):
    """Group of lazy commands and of further groups. `table`: commands of the root group, a class attribute because
    typer makes that group without arguments. `sections`: names of commands by the heading above them in the help;
    empty: one list.
    """

    table: ClassVar[Sequence[Any]] = ()
    sections: ClassVar[Mapping[str, Sequence[str]]] = {}

    def __init__(self, *, commands: Any = None, **attributes: Any) -> None:
        super().__init__(commands=commands or {command.name: command for command in self.table}, **attributes)

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's own options. Their default is False and not None, because typer would import pydantic to convert
        None.
        """
        options = super().get_params(ctx)
        for option in options:
            if option.default is None and getattr(option, "is_flag", False):
                option.default = False
        return options

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands and their summaries into the help, under the headings of `sections`."""
        if not self.sections:
            super().format_commands(ctx, formatter)
            return
        width = max(map(len, self.commands))
        room = formatter.width - width - 6
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{name:<{width}}", self.commands[name].get_short_help_str(room)) for name in names]
                )

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Returns (name, command, remaining arguments) for the arguments, and imports the command. A command name of
        another tool stands for the command of kodoctl that does the same (`validate` for `lint`); if that does only
        something similar, fails with its name as advice (`plan` for `diff`).
        """
        if args[0] not in self.commands and _ALIASES.get(args[0]) in self.commands:
            args = [_ALIASES[args[0]], *args[1:]]
        ours = _OTHER_NAMES.get(args[0], "")
        if ours in self.commands and args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {ours!r}?")
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load_command(command), rest

    def load_all(self) -> Mapping[str, Any]:
        """Imports the commands of this group, and returns them by name, for reference pages and tests. A group within
        this group is returned as it is: its commands are not imported.
        """
        return {name: _load_command(command) for name, command in self.commands.items()}


class _Command(TyperCommand):
    """A loaded command, which runs or completes its options for a shell."""

    def _by_habit(self, args: list[str]) -> list[str]:
        """Replaces option names of other tools, and earlier ones of kodoctl, by the names of this command, if the
        command has the option under another name only. `-o` before the name of a format, such as `-o json`, is
        `--format` also where `-o` is a file: kubectl has it so, and nobody names a file `json`. A format that the
        command does not have is then refused.
        """
        formats = {name for parameter in self.params if "--format" in parameter.opts for name in _choices(parameter)}
        formats |= _FORMATS if formats else set()
        own = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        end = args.index("--") if "--" in args else len(args)
        ours = {habit: words for habit, *words in _HABITS if words[0] in own and habit not in own}
        replaced: list[str] = []
        for word, following in pairwise([*args[:end], ""]):
            name, assigned, value = word.partition("=")
            words = ["--format"] if word == "-o" and following in formats else ours.get(name, [name])
            if word.startswith("-o") and word[2:] in formats:
                words = ["--format", word[2:]]
            replaced += [f"{words[0]}={value}"] if assigned else words
        return [*replaced, *args[end:]]

    def _order(self, ctx: Any, args: list[str]) -> Sequence[Any]:
        """Parameters that the command line gives, one for each time. Fails with a text of its own for an approval
        (`--yes`) if the command does not ask: typer would suggest another option.
        """
        try:
            _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        except Exception as problem:
            if (name := getattr(problem, "option_name", "")) in ("--yes", "-y"):
                ctx.fail(f"No such option: {name}. This command asks nothing.")
            raise
        return cast("Sequence[Any]", order)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the options. While a shell completes a line, values stay as typed: typer imports pydantic to convert
        them, and completion needs none.

        Fails if an option with one value is given several times: the parser would keep the last value and drop the
        others, so that of two named clusters one would be ignored.
        """
        if not ctx.resilient_parsing:
            args = self._by_habit(args)
            order = self._order(ctx, args)
            _refuse_repeated(ctx, order)
            return super().parse_args(ctx, args)
        rest: list[str]
        from kodoctl.cli.completion import completer

        waiting = bool(args) and args[-1].startswith("-")  # for its value: the parser would drop all arguments
        given, rest, _ = self.make_parser(ctx).parse_args(args=args[:-1] if waiting else args)
        for parameter in self.get_params(ctx):
            value, source = parameter.consume_value(ctx, given)
            ctx.set_parameter_source(parameter.name, source)
            ctx.params[parameter.name] = value
            if (complete := completer(ctx.command_path, parameter)) is not None:
                parameter._custom_shell_complete = complete  # noqa: SLF001  # else given where a command is made
        ctx.args = rest
        return rest


_HABITS: Final = (
    ("--yes", "--auto-approve"),
    ("-y", "--auto-approve"),
    ("-auto-approve", "--auto-approve"),
    ("-out", "--out"),
    ("-o", "--format"),
    ("--output", "--format"),
    ("--output", "--out"),
    ("--json", "--format", "json"),
)
"""Option names of other tools, and earlier ones, which no help shows, and the words of ours that each means."""


_FORMATS: Final = {"json", "yaml", "text", "table", "wide"}  # of kubectl and of kodoctl, which are no names of files


_ALIASES: Final = {"validate": "lint"}
"""Command names of other tools that run the command of ours, which does the same."""
_OTHER_NAMES: Final = {"check": "lint", "diff": "plan", "format": "fmt", "up": "apply"}
"""Command names of other tools, and the command of ours that the error proposes for each."""


def _choices(parameter: Any) -> Iterator[str]:
    """Yields the values of an option that takes one of several."""
    annotation = parameter.type_descriptor.annotation
    for kind in get_args(annotation) or [annotation]:
        yield from (str(member.value) for member in getattr(kind, "__members__", {}).values())


def _refuse_repeated(ctx: Any, order: Sequence[Any]) -> None:
    """Fails if an option with one value is given several times. `order`: the parameters that a line gives, one for each
    time. A repeated flag has no other meaning and is allowed.
    """
    for parameter, times in Counter(order).items():
        single = parameter.param_type_name == "option" and not (parameter.multiple or parameter.count)
        if times > 1 and single and (not parameter.is_flag or parameter.secondary_opts):
            ctx.fail(f"Option '{parameter.opts[0]}' is given {times} times; this command takes one.")


def _load_command(command: Any) -> Any:
    return command.load() if isinstance(command, LazyCommand) else command


def group(name: str, text: str, commands: Sequence[LazyCommand | LazyGroup]) -> LazyGroup:
    """Makes a group below the root. Without a command it prints its help, `text`."""
    return LazyGroup(name=name, help=text, commands=commands, no_args_is_help=True, rich_markup_mode=None)
