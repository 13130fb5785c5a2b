"""Functions as a worker shows them, and the form in which it takes them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from typing import Any, cast

import pytest

from kodoctl.pulsar.admin.admin import WITHOUT_WORKERS, Admin, Reply
from kodoctl.pulsar.inventory import evidence_reader
from kodoctl.pulsar.inventory.functions import options_form, options_of, parse, read_functions, request_form
from kodoctl.pulsar.values.evidence import Evidence
from kodoctl.pulsar.values.live_objects import NO_WORKER, NO_WORKER_HERE, FunctionFacts, LiveObject
from kodoctl.topology.function_settings import HIDDEN, settings_text
from kodoctl.topology.names import NamespaceName, TopicName
from kodoctl.topology.resources import FunctionResource

HERE = NamespaceName("acme", "ns")
ENRICH = FunctionResource(
    HERE, "enrich", "http://h/x.jar", "java", frozenset({"persistent://acme/ns/b", "persistent://acme/ns/a"}), "s",
    class_name="a.B", output="persistent://acme/ns/c", config='{"a":1}', memory=1 << 20,
)  # fmt: skip
SHOWN = {
    "className": "a.B",
    "inputSpecs": {"persistent://acme/ns/a": {}, "acme/ns/b": {}},
    "output": "persistent://acme/ns/c",
    "processingGuarantees": "ATLEAST_ONCE",
    "userConfig": {"a": 1.0},
    "runtime": "JAVA",
    "subName": "s",
    "parallelism": 1,
    "resources": {"cpu": 1.0, "ram": 1 << 20, "disk": 2},
    "cleanupSubscription": True,
    "customRuntimeOptions": json.dumps(
        {
            "kodoctl": "trade",
            "kodoctl-package": "http://h/x.jar",
            "kodoctl-settings": sha256(b'{"a":1}').hexdigest(),
        }
    ),
    "subscriptionPosition": "Earliest",
}


def sent(function: FunctionResource, options: dict[str, Any], before: FunctionResource | None) -> dict[str, Any]:
    """The parts of the form by name; that of the configuration is read."""
    body, kind = request_form(function, "trade", options, before)
    mark = kind.partition("boundary=")[2]
    texts = re.findall(r'name="(\w+)"\r\n.*?\r\n\r\n(.*?)\r\n--' + mark, body.decode(), re.DOTALL)
    assert body.endswith(f"--{mark}--\r\n".encode())
    return {name: json.loads(text) if name.endswith("Config") else text for name, text in texts}


def test_what_is_shown_is_what_was_sent() -> None:
    found = parse(
        "function",
        HERE,
        "enrich",
        SHOWN,
        {"numInstances": 1, "numRunning": 0, "instances": [{"status": {"error": "no"}}]},
    )
    assert found.marker == "trade"
    assert isinstance(found.resource, FunctionResource)
    assert (found.resource.cpu, found.resource.disk) == (1.0, 2)
    assert found.resource.inputs == ENRICH.inputs
    assert (found.resource.package, found.resource.config) == (ENRICH.package, ENRICH.config)
    assert found.facts == FunctionFacts(1, 0, "no")


def test_a_worker_s_error_is_short_and_shows_no_password() -> None:
    text = f"no driver for jdbc:postgresql://ann:hunter2@db/shop\n{'x' * 900}"
    facts = parse("sink", HERE, "x", {}, {"instances": [{"status": {"error": text}}]}).facts
    assert isinstance(facts, FunctionFacts)
    assert facts.error.startswith("no driver for jdbc:postgresql://(not shown)@db/shop\\nxx")
    assert len(facts.error) <= 501


def test_a_bare_function_of_others() -> None:
    spec = {"topic": {}, "persistent://a/b/.*": {}, "non-persistent://a/b/c": {}}
    found = parse(
        "function", HERE, "x", {"inputSpecs": spec, "cleanupSubscription": False, "processingGuarantees": "NEW"}, None
    )
    one = found.resource
    assert isinstance(one, FunctionResource)
    assert (one.package, one.subscription, one.guarantees, one.start) == ("", "acme/ns/x", "NEW", "latest")
    assert one.inputs == {"persistent://public/default/topic", "persistent://a/b/.*", "non-persistent://a/b/c"}
    assert (found.marker, found.facts) == (None, FunctionFacts(cleans_up=False))


@pytest.mark.parametrize(
    ("text", "options"),
    [(None, {}), ("", {}), ('{"a": 1}', {"a": 1}), ("no JSON", None), ("[1]", None), ('"x"', None)],
)
def test_options_are_an_object_or_leave_no_room(text: str | None, options: dict[str, Any] | None) -> None:
    assert options_of({"customRuntimeOptions": text}) == options
    found = parse("function", HERE, "x", {"customRuntimeOptions": text}, None)
    assert isinstance(found.facts, FunctionFacts)
    assert found.facts.has_foreign_options == (options is None)


class Worker:
    """Answers GETs by path below `v3/functions/acme/ns`; a number is a refusal."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def call(self, method: str, path: str, **_: Any) -> Reply:
        answer = self.answers.get(path.removeprefix("v3/functions/acme/ns").strip("/").replace("/", "_") or "all", 404)
        reason = (
            {409: "Pulsar Function Worker is not enabled, probably", 418: WITHOUT_WORKERS}.get(answer, "no")
            if isinstance(answer, int)
            else ""
        )
        return (
            Reply(method, path, answer, None, reason) if isinstance(answer, int) else Reply(method, path, 200, answer)
        )


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"all": 409}, NO_WORKER_HERE),
        ({"all": 418}, NO_WORKER),
        ({"all": 503}, "answered 503"),
        ({"all": None}, "no list"),
    ],
)
def test_functions_are_unknown_if_they_cannot_be_listed(answers: dict[str, Any], why: str) -> None:
    found, unread = read_functions(cast("Admin", Worker(**answers)), "function", HERE)
    assert (found, unread.keys()) == ([], {"function.acme/ns"})
    assert why in unread["function.acme/ns"]
    assert "\n" not in unread["function.acme/ns"]


@pytest.mark.parametrize(
    ("answer", "why"), [(400, "reading function.acme/ns/closed"), ("text", "without the function")]
)
def test_a_function_that_cannot_be_read_leaves_the_others_known(answer: Any, why: str) -> None:
    worker = Worker(all=["enrich", "closed"], enrich=SHOWN, closed=answer)
    found, unread = read_functions(cast("Admin", worker), "function", HERE)
    assert [one.resource.address for one in found] == [ENRICH.address]
    assert unread.keys() == {"function.acme/ns/closed"}
    assert why in unread["function.acme/ns/closed"]
    assert "\n" not in unread["function.acme/ns/closed"]


@pytest.mark.parametrize("status", [500, {"numInstances": 1, "numRunning": 1, "instances": []}])
def test_a_function_whose_instances_are_unknown_is_known(status: Any) -> None:
    worker = cast("Admin", Worker(all=["enrich", "gone"], enrich=SHOWN, enrich_status=status))
    [found], _ = read_functions(worker, "function", HERE)
    assert isinstance(found, LiveObject)
    assert isinstance(found.facts, FunctionFacts)
    assert found.facts.running == (None if status == 500 else 1)


def test_a_new_function_has_inputs_and_a_package_and_keeps_options() -> None:
    form = sent(ENRICH, {"jobName": "x", "kodoctl": "other"}, None)
    assert form["url"] == ENRICH.package
    config = form["functionConfig"]
    assert config["inputs"] == ["persistent://acme/ns/a", "persistent://acme/ns/b"]
    assert config["subName"] == "s"
    assert (config["subscriptionPosition"], config["resources"]["ram"]) == ("Earliest", 1 << 20)
    options = {"jobName": "x", "kodoctl": "trade", "kodoctl-package": ENRICH.package}
    written = json.loads(config["customRuntimeOptions"])
    assert written.items() >= options.items()
    assert written["kodoctl-settings"] == sha256(b'{"a":1}').hexdigest()


LIVE = {"db": {"user": "anna", "password": "hunter2"}, "list": [1, "x"], "on": True, "rate": 5.0}


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ({}, {"db": {"user": "-", "password": "-"}, "list": ["-", "-"], "on": True, "rate": "-"}),
        ({"db": {"user": "anna"}, "list": [1], "rate": 6}, {"db": {"user": "anna", "password": "-"}, "list": [1, "-"], "on": True, "rate": "-"}),
        ({"db": "anna", "list": 1, "rate": 5}, {"db": {"user": "-", "password": "-"}, "list": ["-", "-"], "on": True, "rate": 5}),
        (LIVE, LIVE),
    ],
)  # fmt: skip
def test_live_settings_that_no_file_has_are_not_read(declared: dict[str, Any], shown: dict[str, Any]) -> None:
    file = replace(ENRICH, config=settings_text(declared))
    found = parse("function", HERE, "enrich", {**SHOWN, "userConfig": LIVE}, None, file)
    assert isinstance(found.resource, FunctionResource)
    expected = settings_text(shown).replace('"-"', f'"{HIDDEN}"')
    assert found.resource.config == expected
    assert bool(found.hidden) == (HIDDEN in expected)
    other = parse("function", HERE, "enrich", {**SHOWN, "userConfig": {**LIVE, "list": [1, "y"]}}, None, file)
    assert other.hidden != found.hidden or declared == LIVE, "a change of what is not shown is noticed"
    assert HIDDEN not in settings_text(declared)


def test_what_an_apply_wrote_is_shown_until_somebody_changes_it() -> None:
    ours = parse("function", HERE, "enrich", SHOWN, None)
    assert isinstance(ours.resource, FunctionResource)
    assert (ours.resource.config, ours.hidden) == ('{"a":1}', "")
    theirs = parse("function", HERE, "enrich", {**SHOWN, "userConfig": {"a": 2}}, None)
    assert isinstance(theirs.resource, FunctionResource)
    assert theirs.resource.config == f'{{"a":"{HIDDEN}"}}'


def test_settings_by_pulsars_names_are_those_of_the_file_and_of_the_last_apply() -> None:
    options = {"kodoctl-declared": {"timeoutMs": 5}}
    live = {**SHOWN, "retainOrdering": True, "timeoutMs": 7.0, "logTopic": "t", "producerConfig": {"a": 1, "b": 2}}
    live |= {"customRuntimeOptions": json.dumps(options)}
    file = replace(ENRICH, settings='{"producerConfig":{"a":3},"retainOrdering":true,"skipToLatest":false}')
    found = parse("function", HERE, "enrich", live, None, file)
    assert isinstance(found.resource, FunctionResource)
    shown = {"timeoutMs": 7, "producerConfig": {"a": 1}, "retainOrdering": True, "skipToLatest": False}
    silent = replace(ENRICH, settings='{"maxPendingAsyncRequests":9}')
    written = {"customRuntimeOptions": '{"kodoctl-declared": {"maxPendingAsyncRequests": 8}}'}
    kept = parse("function", HERE, "enrich", {**SHOWN, **written}, None, silent).resource
    assert isinstance(kept, FunctionResource)
    assert kept.settings == '{"maxPendingAsyncRequests":8}'
    assert json.loads(found.resource.settings) == shown
    sink = {"transformFunctionConfig": "hunter2"}
    hidden = parse("sink", HERE, "x", sink, None, replace(SINK, settings='{"transformFunctionConfig":"x"}')).resource
    assert isinstance(hidden, FunctionResource)
    assert "hunter2" not in hidden.settings
    form = sent(file, {}, None)["functionConfig"]
    assert (form["retainOrdering"], form["producerConfig"]) == (True, {"a": 3})
    assert json.loads(form["customRuntimeOptions"])["kodoctl-declared"] == json.loads(file.settings)


def test_a_pattern_is_an_input() -> None:
    pattern = "persistent://acme/ns/o-.*"
    both = replace(ENRICH, inputs=ENRICH.inputs | {pattern}, pattern=pattern)
    form = sent(both, {}, None)["functionConfig"]
    assert (form["topicsPattern"], len(form["inputs"])) == (pattern, 2)
    assert "inputs" not in sent(replace(both, inputs=frozenset({pattern})), {}, None)["functionConfig"]
    live = parse("function", HERE, "x", {"inputSpecs": {pattern: {"regexPattern": True}}}, None).resource
    assert isinstance(live, FunctionResource)
    assert (live.pattern, live.inputs) == (pattern, {pattern})


def test_an_update_loads_the_package_only_if_it_is_another_one() -> None:
    assert sent(ENRICH, {}, ENRICH).keys() == {"functionConfig"}
    other = FunctionResource(HERE, "enrich", "", "java", ENRICH.inputs, "s")
    form = sent(ENRICH, {}, other)
    assert form["url"] == ENRICH.package
    assert not {"inputs", "subName"} & form["functionConfig"].keys()
    builtin = FunctionResource(HERE, "enrich", "builtin://x", "java", ENRICH.inputs, "s")
    form = sent(builtin, {}, builtin)
    assert form.keys() == {"functionConfig"}
    assert form["functionConfig"]["jar"] == "builtin://x"
    assert "resources" not in form["functionConfig"]


SINK = FunctionResource(
    HERE, "keep", "builtin://keep", "java", ENRICH.inputs, "s", kind="sink", class_name="a.Keep", config='{"a":1}',
    cpu=1.0, memory=2, disk=3, secrets='{"plain":null,"shown":{"key":"k","path":"p"}}', retries=2,
    dead_letter_topic="persistent://acme/ns/failed", redelivery_delay=1000,
)  # fmt: skip
SHOWN_SINK = {
    "className": "a.Keep",
    "inputSpecs": SHOWN["inputSpecs"],
    "processingGuarantees": "ATLEAST_ONCE",
    "configs": {"a": 1.0},
    "secrets": {"shown": {"path": "p", "key": "k"}, "plain": "hunter2"},
    "sourceSubscriptionName": "s",
    "sourceSubscriptionPosition": "Earliest",
    "parallelism": 1,
    "resources": {"cpu": 1.0, "ram": 2, "disk": 3},
    "maxMessageRetries": 2,
    "deadLetterTopic": "acme/ns/failed",
    "negativeAckRedeliveryDelayMs": 1000,
    "customRuntimeOptions": '{"kodoctl-package": "builtin://keep"}',
}
SOURCE = FunctionResource(
    HERE, "tick", "file:///x", "java", frozenset(), "", kind="io_source", output="persistent://acme/ns/c"
)


def test_a_sink_is_shown_without_its_secrets() -> None:
    found = parse("sink", HERE, "keep", SHOWN_SINK, None, SINK)
    assert (found.resource, found.facts) == (SINK, FunctionFacts())
    bare = parse(
        "sink", HERE, "keep", {**SHOWN_SINK, "deadLetterTopic": None, "maxMessageRetries": None}, None
    ).resource
    assert isinstance(bare, FunctionResource)
    assert (bare.retries, bare.dead_letter_topic) == (None, None)


def test_a_builtin_connector_shows_its_package() -> None:
    found = parse("sink", HERE, "keep", {**SHOWN_SINK, "archive": "builtin://other"}, None).resource
    assert isinstance(found, FunctionResource)
    assert found.package == "builtin://other", "somebody replaced it since"


def test_a_sink_has_its_retries_when_it_is_created() -> None:
    config = sent(SINK, {}, None)["sinkConfig"]
    assert config["archive"] == SINK.package
    assert config["secrets"] == {"shown": {"path": "p", "key": "k"}, "plain": None}
    assert (config["sourceSubscriptionName"], config["sourceSubscriptionPosition"]) == ("s", "Earliest")
    assert (config["maxMessageRetries"], config["negativeAckRedeliveryDelayMs"]) == (2, 1000)
    assert config["deadLetterTopic"] == "persistent://acme/ns/failed"
    assert not {"runtime", "output"} & config.keys()
    update = sent(SINK, {}, SINK)["sinkConfig"]
    assert not {"inputs", "sourceSubscriptionName", "maxMessageRetries", "deadLetterTopic"} & update.keys()


def test_a_mark_sets_nothing_but_the_options() -> None:
    body, _ = options_form(SOURCE, {"kodoctl": "trade"})
    (sent_text,) = re.findall(r'name="sourceConfig".*?\r\n\r\n(.*?)\r\n--', body.decode(), re.DOTALL)
    assert json.loads(sent_text) == {"customRuntimeOptions": '{"kodoctl": "trade"}'}


def test_an_io_source_has_no_subscription() -> None:
    shown = {"topicName": "acme/ns/c", "processingGuarantees": "ATLEAST_ONCE", "configs": {}}
    found = parse("io_source", HERE, "tick", shown, None)
    assert found.resource == replace(SOURCE, package="", secrets="{}", start="latest")
    assert found.facts == FunctionFacts(cleans_up=False)
    form = sent(SOURCE, {}, None)
    assert form["url"] == "file:///x"
    assert form["sourceConfig"]["topicName"] == "persistent://acme/ns/c"
    assert not {"inputs", "", "maxMessageRetries"} & form["sourceConfig"].keys()


@pytest.mark.parametrize(
    ("each", "messages"),
    [((Evidence(2, 7), Evidence(1, 3)), 10), ((Evidence(2, 7), Evidence(1)), None), ((Evidence(2, 7), Evidence()), 7), ((Evidence(), Evidence()), None)],
)  # fmt: skip
def test_messages_of_all_inputs_are_known_or_none_are(
    each: tuple[Evidence, ...], messages: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(each)
    monkeypatch.setattr(evidence_reader, "read_stats", lambda *_, **__: {})
    monkeypatch.setattr(evidence_reader, "_of_subscription", lambda *_: next(left))
    assert evidence_reader.function_evidence(cast("Admin", None), ENRICH).messages == messages


def test_marks_of_producers_are_no_messages_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter((Evidence(1, 0, marks=1), Evidence(4, 0, marks=3, unseen_marks=True)))
    monkeypatch.setattr(evidence_reader, "read_stats", lambda *_, **__: {})
    monkeypatch.setattr(evidence_reader, "_of_subscription", lambda *_: next(left))
    found = evidence_reader.function_evidence(cast("Admin", None), ENRICH)
    assert (found.entries, found.messages, found.marks, found.unseen_marks) == (5, 0, 4, True)


def test_the_topics_of_a_pattern_are_inputs_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread messages in them would go with the function; a pattern that only Java can read may match any topic."""
    topics = [TopicName(HERE, name) for name in ("orders", "orders-2", "other")]
    monkeypatch.setattr(evidence_reader, "list_topics", lambda *_: (topics[:1], topics[1:]))
    monkeypatch.setattr(evidence_reader, "read_stats", lambda *_, **__: {})
    monkeypatch.setattr(evidence_reader, "_of_subscription", lambda *_: Evidence(1, 1))
    admin = cast("Admin", None)
    for pattern, count in (("persistent://acme/ns/orders.*", 2), ("persistent://acme/ns/\\p{Alpha}+", 3)):
        function = replace(ENRICH, inputs=frozenset({pattern}), pattern=pattern)
        assert evidence_reader.function_evidence(admin, function).messages == count
    elsewhere = replace(ENRICH, inputs=frozenset({".*"}), pattern=".*")
    assert "not known" in evidence_reader.function_evidence(admin, elsewhere).unread
