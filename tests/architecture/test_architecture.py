"""The rooms of the house: who may import whom, which libraries where, and that only the edge speaks."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import networkx as nx
import pytest

from tests.architecture.syntax_trees import nodes, tree
from tests.source_roots import PACKAGES, ROOT, SOURCES

MAX_LINES = 600
MAX_FUNCTION = 60
MAX_CHAIN = 13  # modules that import one another


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _speaks(path: Path) -> bool:
    """The edge: command lines; and of the consumer what a program of the user's calls instead of one."""
    name = _name(path)
    command = name.startswith("pipeline/") and path.stem.endswith(("_command", "_commands"))
    return (
        command
        or name.startswith(("kodoctl/cli/", "consumer/kodo_consumer/cli/"))
        or name
        in (
            "pipeline/kodo_pipeline/landing/command_options.py",
            "pipeline/kodo_pipeline/spark/spark_progress.py",
            "pipeline/kodo_pipeline/run/run_service.py",  # ends a process whose run cannot be ended
            "consumer/kodo_consumer/sending/environment.py",
            "consumer/kodo_consumer/consumer.py",
            "consumer/kodo_consumer/running/multi_run.py",
            "kodoctl/host/end_signals.py",
            "consumer/kodo_consumer/runtime/process_pool/worker_process.py",  # a process of its own
            "kodoctl/pulsar/connection/secret.py",  # in tasks of Spark's, which have no command line of ours
            "kodoctl/host/programs.py",  # of processes that it starts
        )
    )


def test_imports_point_one_way() -> None:
    command = [sys.executable, "-c", "import importlinter.cli as cli; cli.lint_imports_command()", "--no-cache"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # it sets up logging anew
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_modules_import_each_other() -> None:
    """Neither within functions nor for types: who reads one of them would have to read the other first."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = nx.DiGraph(
        (one, other) for one in graph.modules for other in graph.find_modules_directly_imported_by(one)
    )
    assert not [sorted(found) for found in nx.strongly_connected_components(imports) if len(found) > 1]


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts[parts[0] not in PACKAGES :] if part != "__init__")


def _loaded(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """What these statements import as they run, by full names: not what functions import, nor what only annotations need."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=orelse):
                yield from _loaded(orelse)
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                yield from _loaded(ast.iter_child_nodes(node))


def test_chains_of_imports_are_short() -> None:
    """Who reads the first module of a chain may have to read all of it, and a start loads it."""
    modules = {_module(path): path for path in SOURCES}
    imports = nx.DiGraph()
    for module, path in modules.items():
        for name in _loaded(tree(path).body):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                imports.add_edge(module, target)
    chain = nx.dag_longest_path(imports)
    assert len(chain) <= MAX_CHAIN, f"a chain of {len(chain)} modules: {' > '.join(chain)}"


def _calls(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", [path for path in SOURCES if not _speaks(path)], ids=_name)
def test_nothing_below_the_edge_prints_asks_exits_or_reads_the_environment(path: Path) -> None:
    forbidden = {"print", "input", "exit", "quit", "sys.exit", "os._exit", "os.environ", "os.getenv", "os.environb"}
    found = forbidden & set(_calls(path))
    assert not found, f"{_name(path)} uses {', '.join(sorted(found))}: pass it in, or do it in a cli module"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_files_and_functions_stay_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LINES, f"{_name(path)}: more than {MAX_LINES} lines: two files"
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{_name(path)}:{node.lineno} {node.name} has {length} lines"


@pytest.mark.parametrize("path", [path for path in SOURCES if _name(path).startswith("consumer/")], ids=_name)
def test_threads_are_begun_where_each_end_is_told(path: Path) -> None:
    """A thread that ends without a word leaves a worker that looks well and does nothing: kodo_consumer.runtime.threads."""
    by_itself = ("Thread", "Timer", "start_new_thread", "ThreadPoolExecutor")
    found = {
        ast.unparse(node)
        for node in nodes(path)
        if (isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in by_itself)
        or (isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Thread") for base in node.bases))
    }
    assert _name(path) == "consumer/kodo_consumer/runtime/threads.py" or not found, (
        f"{_name(path)}: use kodo_consumer.runtime.threads.begin"
    )


def test_a_delete_is_sent_by_the_one_function_that_looks_before_every_try() -> None:
    """Elsewhere it would be sent again over what came since somebody looked."""
    found = set()
    for path in SOURCES:
        for node in nodes(path):
            if not isinstance(node, ast.Call):
                continue
            arguments = [*node.args, *(one.value for one in node.keywords)]
            if any(isinstance(one, ast.Constant) and one.value == "DELETE" for one in arguments):
                found.add(f"{_name(path)}: {ast.unparse(node.func)}")
    assert found == {
        "kodoctl/pulsar/admin/confirmed_write.py: admin.call",
        "kodoctl/pulsar/inventory/policy_requests.py: Write",
    }


def test_names_in_paths_of_schemas_and_subscriptions_are_encoded_in_one_place() -> None:
    """Pulsar decodes them twice: a path made elsewhere would name another object."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts = (str(one.value) for one in node.values if isinstance(one, ast.Constant))
                found |= {_name(path) for text in texts if text.endswith(("schemas/", "subscription/"))}
    assert found == {
        "kodoctl/pulsar/admin/admin.py",
        "kodoctl/pulsar/inventory/bulk_policies.py",  # of the system topic, whose name is known
        "kodoctl/pulsar/inventory/policy_requests.py",  # permissions, which Pulsar decodes once
    }


def _third_party() -> dict[str, set[str]]:
    """Module of another distribution -> our files that import it."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for node in nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in PACKAGES:
                    found.setdefault(top, set()).add(_name(path))
    return found


def _declared() -> tuple[set[str], set[str]]:
    """(runtime dependencies, those of extras), by their distributions' names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(lines: list[str]) -> set[str]:
        return {line.split("[")[0].split(">")[0].split("=")[0].split("<")[0].strip().lower() for line in lines}

    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    return names(project["dependencies"]), names(extras)


def test_every_library_that_is_imported_is_declared_and_every_declared_one_is_imported() -> None:
    runtime, extras = _declared()
    distributions = packages_distributions()
    of = {
        module: {dist.lower().replace("_", "-") for dist in distributions.get(module, [module])}
        for module in _third_party()
    }  # several where distributions share a namespace, such as OpenTelemetry's
    used = set[str]().union(*of.values())
    brought_along = {"pydantic-core", "py4j"}  # what pydantic and Spark need themselves
    assert not [module for module, names in of.items() if names.isdisjoint(runtime | extras | brought_along)]
    assert not runtime - used, "declared, and nobody imports it"


def test_sessions_of_spark_are_made_in_one_place() -> None:
    """Elsewhere they would say what Spark says, and answer in the machine's own time zone."""
    made = ("SparkSession.builder", "SparkContext(")
    found = {_name(path) for path in SOURCES if any(one in path.read_text(encoding="utf-8") for one in made)}
    assert found == {"pipeline/kodo_pipeline/spark/spark_session.py"}


def test_spark_runs_our_python_where_few_rows_pass_and_nowhere_else() -> None:
    """A row that goes through Python costs more than all else that is done with it."""
    ours = {"udf", "pandas_udf", "arrow_udf", "applyInPandas", "applyInArrow", "mapInPandas", "mapInArrow", "toPandas", "rdd",
            "transformWithState", "transformWithStateInPandas"}  # fmt: skip
    few = {
        "pipeline/kodo_pipeline/ingest/event_stream.py",  # the source itself: every message comes out of Python, once
        "pipeline/kodo_pipeline/recall/send_job.py",  # a row for each lane
        "pipeline/kodo_pipeline/audit/signatures.py",  # where keys are given, a producer's mark: one a minute and partition at most
        "pipeline/kodo_pipeline/recall/dead_letter_rows.py",  # conditions of dead letters: one meaning, measured in benchmarks/pipeline
    }
    found = set()
    for path in SOURCES:
        if not _name(path).startswith("pipeline/kodo_pipeline/"):
            continue
        names = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in nodes(path) if isinstance(node, ast.Name)}
        if ours & names:
            found.add(_name(path))
    assert found == few
