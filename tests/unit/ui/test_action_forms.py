"""Fields of forms become requests or are refused; each request names the command line that does the same."""

from __future__ import annotations

import shlex

import pytest

from kodoctl.errors import UsageError
from kodoctl.protocol.overrides import Override, OverrideKind
from kodoctl.recall.filter.condition import parse
from kodoctl.ui.action_forms import (
    LaneFacts,
    LetterAction,
    LetterRequest,
    OrderRequest,
    UndoRequest,
    button_words,
    letter_title,
    narrowed,
    order_fields,
)
from tests.samples.consoles import WORDS
from tests.unit.recall.letters import NOW, letter

PLACE = {"topology": "trade", "topic": "orders-billing-DLQ", "subscription": "billing"}
DEAD = LaneFacts("orders", "", (LetterAction.SEND, LetterAction.DISCARD), ("L2", "L1"), "uid")
RETRYING = LaneFacts("orders", "L1/retrying", (LetterAction.RELEASE,), ("L2/ready",), None)


def letters(**fields: str) -> LetterRequest:
    return LetterRequest.of({**PLACE, "action": "send", **fields})


def test_an_empty_form_means_all_messages_and_the_usual_limit() -> None:
    request = letters()
    assert (request.where, request.limit, request.to, request.again) == ("true", 10_000, "", False)
    assert LetterRequest.of(request.form) == request


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"limit": "a few"}, "K567"),
        ({"limit": "0"}, "K567"),
        ({"limit": "100001"}, "K567"),
        ({"limit": "９"}, "K567"),
        ({"action": "drop"}, "K039"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(fields: dict[str, str], code: str) -> None:
    with pytest.raises(UsageError, match=code):
        letters(**fields)


def test_a_tenant_narrows_the_condition() -> None:
    assert letters(tenant="it's").where == "tenant = 'it\\'s'"
    assert letters(tenant="u1", where="attempts > 3 OR true").where == "(attempts > 3 OR true) AND tenant = 'u1'"
    assert narrowed("true", "cause", "") == "true"
    found = parse(narrowed("true", "cause", "(none)"), NOW)
    assert [found.chooses(letter(reason=why)) for why in ("(none)", "", "Boom")] == [True, True, False]


def test_dead_letters_are_recalled_and_discarded_by_these_commands() -> None:
    request = letters(where="key = '1'", to="L2", limit="5", because="the bank", again="yes")
    plan, apply = request.commands(WORDS, DEAD, ("--ledger", "s3://b/l"))
    assert shlex.split(plan) == [
        *["kodoctl", "recall", "plan", "topologies/trade.yaml", "--topic", "orders", "--subscription", "billing", "--where"], "key = '1'",
        *["--to", "L2", "--limit", "5", "--again", "--because"], "the bank",
        *["--ledger", "s3://b/l", "--out", "recall.json", "--context", "prod"],
    ]  # fmt: skip
    assert apply == "kodoctl recall apply recall.json --ledger s3://b/l --context prod"
    plan, apply = letters(action="discard").commands(WORDS, DEAD, ())
    assert plan.startswith("kodoctl recall discard topologies/trade.yaml --topic")
    assert apply == "kodoctl recall apply recall.json --context prod"


def test_a_discard_of_dead_letters_has_no_options_of_a_recall() -> None:
    request = letters(action="discard", to="L2", again="yes").fit(DEAD)
    assert (request.to, request.again) == ("", False)
    plan, _ = request.commands(WORDS, DEAD, ())
    assert "--to " not in plan
    assert "--again" not in plan
    for kept, lane in ((letters(to="L2", again="yes"), DEAD), (letters(action="discard", to="L2/ready"), RETRYING)):
        assert kept.fit(lane) == kept


def test_waiting_messages_have_these_commands() -> None:
    assert "--again" not in letters(again="yes").commands(WORDS, RETRYING, ())[0]
    plan, apply = letters(action="discard").commands(WORDS, RETRYING, ())
    assert "kodoctl waiting plan topologies/trade.yaml --topic orders --subscription billing" in plan
    assert "--lane L1/retrying --action discard --where true --out waiting.json" in plan
    assert apply == "kodoctl waiting apply waiting.json --context prod"


def test_titles_and_buttons_name_the_action() -> None:
    assert letter_title(letters(), DEAD) == "Send again: orders / billing, dead letters"
    assert letter_title(letters(action="release"), RETRYING) == "Release: orders / billing, L1/retrying"
    assert button_words(LetterAction.SEND, 3, "letter") == "Send 3 letters again"
    assert button_words(LetterAction.DISCARD, 1, "message") == "Discard 1 message"


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({"what": "pause", "lane": "L1/retrying"}, "pause {} --lane L1/retrying --for 1h"),
        ({"what": "pause", "tenant": "bank", "lasting": "2h", "why": "x"}, "pause {} --tenant bank --for 2h --why x"),
        ({"what": "pause", "tenant": "bank", "back": "yes"}, "resume {} --tenant bank"),
        (
            {"what": "limit", "limit": "rate", "by": "uid", "value": "a", "within": "L2", "to": "5/s"},
            "limit {} --kind rate --by uid --in L2 --value a --to 5/s --for 1h",
        ),
        ({"what": "limit", "limit": "rate", "to": "1/s", "back": "yes"}, "limit {} --kind rate --back"),
        (
            {"what": "move", "tenant": "bank", "to": "L2", "waiting": "stay"},
            "move {} --tenant bank --to L2 --waiting stay --for 1h",
        ),
        ({"what": "weight", "tenant": "bank", "to": "5", "back": "yes"}, "weight {} --tenant bank --back"),
        ({"what": "slots", "within": "L2", "to": "max 8", "back": "yes"}, "concurrency {} --in L2 --back"),
    ],
)
def test_an_order_has_this_command(fields: dict[str, str], command: str) -> None:
    request = OrderRequest.of({"topology": "trade", "ground": "orders", "subscription": "billing", **fields})
    order = Override(request.what, 0, 1, "me", **request.details)
    place = "topologies/trade.yaml --topic orders --subscription billing"
    assert request.command(WORDS, order) == f"kodo-consumer {command.format(place)} --context prod"
    assert request.place == {"topology": "trade", "ground": "orders", "subscription": "billing"}


def test_an_order_is_taken_back_by_its_subject() -> None:
    order = Override(OverrideKind.LIMIT, 0, 1, "me", limit="rate", by="uid", to="5/s")
    fields = order_fields(order)
    assert fields == {"what": "limit", "back": "yes", "limit": "rate", "by": "uid", "to": "5/s"}
    request = OrderRequest.of(fields)
    assert Override(request.what, 5, 6, "you", **request.details).concerns == order.concerns


def test_an_order_is_taken_back_by_the_very_name_of_its_subject() -> None:
    fields = {"what": "pause", "tenant": " bank\t"}
    assert OrderRequest.of(fields).details == {"tenant": "bank"}
    for exact in ("back", "exact"):
        assert OrderRequest.of({**fields, exact: "yes"}).details == {"tenant": " bank\t"}


def test_an_unknown_kind_of_order_is_refused() -> None:
    with pytest.raises(UsageError, match="K039"):
        OrderRequest.of({"what": "stop everything"})


def test_an_undo_names_what_may_be_destroyed() -> None:
    request = UndoRequest.of({"topology": "trade", "id": " 1234 ", "destroy": "a\nb"})
    assert request.command(WORDS, "kodo/trade") == (
        "kodoctl undo 1234 kodo/trade --allow-destroy a --allow-destroy b --context prod"
    )


def test_lanes_have_names() -> None:
    assert (DEAD.name, RETRYING.name) == ("dead letters", "L1/retrying")
