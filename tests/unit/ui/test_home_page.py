"""The first screen as a page: where its links lead, and what it shows of a cluster that does not answer."""

from __future__ import annotations

import html
import re

from kodoctl.ui.first_screen import ScreenFacts
from kodoctl.ui.letter_causes import CauseCount, LetterCauses
from tests.samples.console_actions import SampleActions, desk
from tests.samples.consoles import data_of, lane, reading, served

DEAD = ("trade", "orders-billing-DLQ", "orders", "billing")
LETTERS = LetterCauses(3, True, (CauseCount("ValueError", 3, (("eve", 3),)),), (("eve", 3),))


def test_the_advice_to_pause_a_tenant_opens_the_form_that_pauses_it() -> None:
    status, own = reading(lane(consumers=1), lane("dead", entries=3)), desk()
    data = data_of(status, read_facts=lambda _: ScreenFacts({DEAD: LETTERS}))
    with served(data, (SampleActions(), own)) as console:
        page = console.ask("/lanes").text
        [address] = re.findall(r'href="([^"]+)">Pause this tenant', page)
        assert "action?" in page, "letters are sent again by another form"
        form = console.ask(f"/{html.unescape(address).partition('#')[0]}").text
    assert address.endswith("#pause-tenant")
    assert re.search(r'id="pause-tenant"[^>]* value="eve"', form), form
    own.close(lambda _: None)


def test_no_worker_is_coloured_where_messages_wait() -> None:
    with served(data_of(reading(lane(entries=3)))) as console:
        assert '<b class="failed">0</b>' in console.ask("/lanes").text
    with served(data_of(reading(lane()))) as console:
        assert '<b class="failed">0</b>' not in console.ask("/lanes").text
