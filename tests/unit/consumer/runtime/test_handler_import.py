"""Handlers by module and name: what fails there is told by the user's own file and line, with what is near to a wrong name."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import kodo_consumer
import pytest
from kodo_consumer.runtime.handler_import import import_failure, load_handler

from kodoctl.errors import KodoctlError, UsageError

OURS = str(Path(kodo_consumer.__file__).parent)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def told(handler: str, **files: str) -> str:
    """What is said of a handler that cannot be loaded."""
    for name, text in files.items():
        Path(f"{name}.py").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="K718") as raised:
        load_handler(handler)
    found = str(raised.value)
    head = "handler not found" if "handler not found" in found else "handler cannot be imported"
    text = found.partition(f"{head}: ")[2]
    assert (head == "handler cannot be imported") == bool(re.search(r": \w+ in \S+\.py:\d+: ", text)), text
    assert OURS not in text
    assert "Traceback" not in text
    return text


def test_what_a_module_raises_is_told_by_its_own_lines() -> None:
    helper = "def connect():\n    return {}['bank']\n\n\nconnect()\n"
    text = told("pay_app:bill", pay_app="import json\nimport pay_bank\n", pay_bank=helper)
    assert text == "pay_app:bill: KeyError in pay_bank.py:2: 'bank'; reached from pay_bank.py:5, pay_app.py:2"


def test_an_attribute_that_is_missing_at_import_is_no_missing_handler() -> None:
    text = told("attribute_app:bill", attribute_app="import json\n\njson.lod('{}')\ndef bill(message): ...\n")
    assert text == "attribute_app:bill: AttributeError in attribute_app.py:3: module 'json' has no attribute 'lod'"


def test_a_library_that_is_missing_is_told_by_who_imports_it() -> None:
    text = told("library_app:bill", library_app="\nimport no_such_library\n")
    assert text == "library_app:bill: ModuleNotFoundError in library_app.py:2: No module named 'no_such_library'"


def test_an_error_within_a_library_is_told_by_the_line_that_called_it() -> None:
    text = told("quiet_app:bill", quiet_app="import json\n\njson.loads('{')\n")
    assert text.startswith("quiet_app:bill: JSONDecodeError in quiet_app.py:3: Expecting property name")


def test_our_own_lines_are_not_shown_where_the_user_called_us_wrongly() -> None:
    text = told("wrong_app:bill", wrong_app="from kodo_consumer import Consumer\n\nConsumer.load()\n")
    assert text.startswith("wrong_app:bill: TypeError in wrong_app.py:3: ")
    text = told("deep_app:bill", deep_app="from kodo_consumer import Retry\n\nRetry(code=7)\n")
    assert text.startswith("deep_app:bill: TypeError in deep_app.py:3: code is a word of retrying.by_code")


def test_a_syntax_error_is_told_with_its_line_and_who_imported_it() -> None:
    text = told("syntax_app:bill", syntax_app="def bill(message)\n    pass\n")
    assert text == "syntax_app:bill: SyntaxError in syntax_app.py:1: expected ':': def bill(message)"
    text = told("other_app:bill", other_app="import syntax_app\n")
    assert text.endswith("in syntax_app.py:1: expected ':': def bill(message); reached from other_app.py:1")
    Path("bytes_app.py").write_bytes(b"name = '\xff'\n")
    assert told("bytes_app:bill").startswith("bytes_app:bill: SyntaxError in bytes_app.py")


def test_a_module_that_ends_the_process_is_told() -> None:
    text = told("exit_app:bill", exit_app="import sys\nsys.exit('no licence')\n")
    assert text == "exit_app:bill: SystemExit in exit_app.py:2: no licence"


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ("near_app:bil", "near_app:bil: near_app.py has no bil; did you mean bill?"),
        ("near_app:charge", "near_app:charge: near_app.py has no charge; it has bill, ship"),
        ("near_app:number", "near_app:number: number in near_app.py is of the type int; name a function that takes"),
        (
            "near_app:consumer",
            "is of the type Consumer; name it alone: `kodo-consumer run near_app:consumer`",
        ),
        ("near_ap:bill", "did you mean near_app?"),
        ("package_ap:bill", "did you mean package_app?"),
        ("wholly_different:bill", "there is no module wholly_different, looked for in "),
        ("near_app.py:bill", "a module is named without folders and .py, such as near_app:FUNCTION"),
        ("./jobs/near_app:bill", "such as jobs.near_app:FUNCTION"),
        ("near_app", "write MODULE:FUNCTION"),
        (":bill", "write MODULE:FUNCTION"),
    ],
)
def test_what_is_near_to_a_wrong_name_is_said(handler: str, expected: str) -> None:
    Path("package_app").mkdir()
    Path("package_app", "__init__.py").touch()
    app = "from json import loads\nnumber = 3\ndef bill(message): ...\nconsumer = type('Consumer', (), {})()\ndef ship(message): ...\ndef _own(): ...\n"
    assert expected in told(handler, near_app=app)


def test_a_built_in_module_is_told_by_its_name() -> None:
    assert told("time:handle").startswith("time:handle: time has no handle")


def test_what_a_modules_own_lookup_of_names_raises_is_told_by_its_lines() -> None:
    text = told("lazy_app:bill", lazy_app="def __getattr__(name):\n    raise RuntimeError(f'no {name}')\n")
    assert text == "lazy_app:bill: RuntimeError in lazy_app.py:2: no bill"


def test_a_folder_that_may_not_be_read_hides_no_wrong_name(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("closed").mkdir()
    stat = os.stat

    def refuse(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if "closed/" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert "there is no module wholly_different" in told("wholly_different:bill")


def test_a_working_folder_that_was_deleted_is_told_and_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("gone").mkdir()
    monkeypatch.chdir("gone")
    Path("../gone").rmdir()
    with pytest.raises(UsageError, match="K031"):
        load_handler("gone_app:bill")
    with pytest.raises(ValueError, match="invalid literal") as raised:
        int("seven")
    assert re.match(r"ValueError in \S+test_handler_import\.py:\d+: invalid", import_failure(raised.value))


def test_a_module_without_functions_has_none_to_list() -> None:
    assert told("empty_app:bill", empty_app="number = 3\n") == "empty_app:bill: empty_app.py has no bill"


def test_what_the_module_itself_loads_is_told_as_ever() -> None:
    text = "from kodo_consumer import Consumer\nConsumer.load('missing.yaml', topic='t', subscription='s')\n"
    Path("loads_app.py").write_text(text, encoding="utf-8")
    with pytest.raises(KodoctlError, match=r"missing\.yaml") as raised:
        load_handler("loads_app:bill")
    assert "K718" not in str(raised.value)
