"""Wrong files as people really write them, and all that is printed about each: what, where, why, and what to do, so that the
file can be mended without any documentation.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.brokers.workspace import run_main

HEAD = "version: 1\nname: trade\ntenant: kodo\nnamespace: trade\n"
NOBODY = ("--admin-url", "http://127.0.0.1:1")

# what is wrong, the file (after the usual head, unless it has its own), what is printed
WRONG = [
    (
        "a misspelt key",
        """
        topics:
          orders:
            subscriptions:
              billing:
                expected_worker: 2
        """,
        """
        Error: unknown key [K003]
          at topologies/trade.yaml:9:9
          topics.orders.subscriptions.billing.expected_worker: did you mean
          'expected_workers'?
        """,
    ),
    (
        "units people write elsewhere",
        """
        topics:
          orders:
            policies:
              ttl: 7 days
              retention: {time: 3d, size: 10G}
        """,
        """
        Error: wrong unit [K005]
          at topologies/trade.yaml:8:12
          topics.orders.policies.ttl: '7 days' is not a duration: a number with one of
          the units ms, s, m, h, d, for example 30s or `unlimited`
        Error: wrong unit [K005]
          at topologies/trade.yaml:9:35
          topics.orders.policies.retention.size: '10G' is not a size: a number with one
          of the units B, KiB, MiB, GiB, TiB, kB, MB, GB, TB, for example 10GiB or
          `unlimited`
        """,
    ),
    (
        "indentation with a tab",
        "topics:\n\torders:\n\t\tlevels: double\n",
        """
        Error: not YAML [K001]
          at topologies/trade.yaml:6:1
          this is a tab; indent with spaces, two a level
        """,
    ),
    (
        "a key written twice",
        """
        topics:
          orders:
            levels: double
            backup: true
            levels: single
        """,
        """
        Error: duplicate key [K002]
          at topologies/trade.yaml:9:5
          'levels' stands on line 7 already: keep one of the two
        """,
    ),
    (
        "values of the wrong type",
        """
        topics:
          orders:
            partitions: "4"
            backup: yes
            subscriptions: [billing]
        """,
        """
        Error: wrong value [K004]
          at topologies/trade.yaml:7:17
          topics.orders.partitions: the text '4', should be a whole number (without
          quotes)
        Error: wrong value [K004]
          at topologies/trade.yaml:8:13
          topics.orders.backup: the text 'yes', should be true or false
        Error: wrong value [K004]
          at topologies/trade.yaml:9:20
          topics.orders.subscriptions: a list, should be a map such
          as {billing: {states: [retrying]}}
        """,
    ),
    (
        "a name with a slash",
        """
        version: 1
        name: trade
        tenant: kodo
        namespace: kodo/trade
        topics:
          eu/orders: {}
        """,
        """
        Error: name that Pulsar refuses or that would be ambiguous [K101]
          at topologies/trade.yaml:4:12
          namespace 'kodo/trade': it holds '/': letters, digits and - = : . _ are
          allowed
        Error: name that Pulsar refuses or that would be ambiguous [K101]
          at topologies/trade.yaml:6:3
          ground topic 'eu/orders': it holds '/': letters, digits and - = : . _ are
          allowed
        """,
    ),
    (
        "a route to a level that the topic does not have",
        """
        topics:
          orders:
            message_properties: {size: required}
            subscriptions:
              billing:
                routes:
                  - {when: {property: size, greater_than: 100000}, to: B1}
        """,
        """
        Error: levels, states or routes that contradict each other [K103]
          at topologies/trade.yaml:11:64
          B1 is no level of this topic: the levels are L1; `backup: true` adds it
        """,
    ),
    (
        "a route to a state instead of a level",
        """
        topics:
          orders:
            subscriptions:
              billing:
                states: [retrying]
                routes:
                  - {when: {property: size, greater_than: 100000}, to: pending}
        """,
        """
        Error: levels, states or routes that contradict each other [K103]
          at topologies/trade.yaml:11:64
          topics.orders.subscriptions.billing.routes[0].to: the text 'pending' is no
          level: S3, S2, S1, L8, L7, L6, L5, L4, L3, L2, L1, B1, B2, B3, D1
        """,
    ),
    (
        "a colon without a space",
        """
        topics:
          orders:
            levels:double
            backup: true
        """,
        """
        Error: not YAML [K001]
          at topologies/trade.yaml:7:11
          a space is missing after the colon: write `levels: double`
        """,
    ),
    (
        "a colon without a space, and nothing after it",
        """
        topics:
          orders:
            levels:double
        """,
        """
        Error: wrong value [K004]
          at topologies/trade.yaml:7:5
          topics.orders: the text 'levels:double', should be a map (a space is missing
          after the colon: `levels: double`)
        """,
    ),
    (
        "a level out of range",
        """
        topics:
          orders:
            levels: [L1, L2, L9]
        """,
        """
        Error: levels, states or routes that contradict each other [K103]
          at topologies/trade.yaml:7:22
          topics.orders.levels[2]: the text 'L9' is no level: S3, S2, S1, L8, L7, L6,
          L5, L4, L3, L2, L1, B1, B2, B3, D1
        """,
    ),
    (
        "a list of levels without L1",
        """
        topics:
          orders:
            levels: [L2, S1]
        """,
        """
        Error: levels, states or routes that contradict each other [K103]
          at topologies/trade.yaml:7:5
          L1 is missing: it is the ground topic itself, and always part of the list
        """,
    ),
    (
        "weights out of range",
        """
        topics:
          orders:
            subscriptions:
              billing:
                weights: {ready: 500, retrying: -1}
        """,
        """
        Error: weights or waits that cannot work [K104]
          at topologies/trade.yaml:9:26
          500: a weight is 0 to 200
        Error: weights or waits that cannot work [K104]
          at topologies/trade.yaml:9:41
          -1: a weight is 0 to 200
        """,
    ),
    (
        "delays that fall, and too few attempts",
        """
        topics:
          orders:
            subscriptions:
              billing:
                retrying: {delays: [10m, 1m], attempts: 1}
        """,
        """
        Error: weights or waits that cannot work [K104]
          at topologies/trade.yaml:9:34
          1m does not rise above 10m: put the delays in rising order; the last one
          repeats by itself
        Error: weights or waits that cannot work [K104]
          at topologies/trade.yaml:9:49
          retrying: 1 attempt never reaches the last of 2 delays: write `attempts: 2` or
          more, or fewer delays
        """,
    ),
    (
        "a line one space too far in",
        """
        topics:
          orders:
            levels: double
             backup: true
        """,
        """
        Error: not YAML [K001]
          at topologies/trade.yaml:8:6
          this line stands further in than line 7, whose `levels` has a value already:
          begin both in column 5, or take that value away
        """,
    ),
    (
        "a quote that is never closed",
        """
        description: "orders and returns
        topics:
          orders: {}
        """,
        """
        Error: not YAML [K001]
          at topologies/trade.yaml:5:14
          the quote that opens here is never closed
        """,
    ),
    (
        "keys that are missing",
        """
        version: 1
        name: trade
        topics: {orders: {}}
        """,
        """
        Error: missing field [K006]
          at topologies/trade.yaml:1:1
          namespace is needed: a text such as trade
        Error: missing field [K006]
          at topologies/trade.yaml:1:1
          tenant is needed: a text such as kodo
        """,
    ),
    (
        "a list where a map belongs",
        """
        topics:
          - orders
          - returns
        """,
        """
        Error: wrong value [K004]
          at topologies/trade.yaml:6:3
          topics: a list, should be a map such
          as {orders: {subscriptions: {billing: {}}}}
        """,
    ),
    (
        "a key without a value",
        """
        topics:
          orders:
            subscriptions:
              billing:
                retrying:
        """,
        """
        Error: null outside an overlay [K015]
          at topologies/trade.yaml:9:9
          topics.orders.subscriptions.billing.retrying has no value: write a map such
          as {delays: [10s, 1m, 5m], attempts: 12} ({} takes every default), or remove
          the key (null stands only in overlays)
        """,
    ),
    (
        "a backlog quota above retention",
        """
        topics:
          orders:
            policies:
              backlog_quota: {size: 20GiB}
              retention: {time: 7d, size: 10GiB}
        """,
        """
        Error: backlog quota not below retention [K206]
          at topologies/trade.yaml:8:29
          orders: backlog quota 20GiB is not below retention 10GiB: lower the quota or
          raise retention
        """,
    ),
]


@pytest.mark.parametrize(("text", "printed"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_printed_mends_the_file(folder: Path, text: str, printed: str) -> None:
    body = textwrap.dedent(text).lstrip("\n")
    (folder / "topologies").mkdir()
    (folder / "topologies" / "trade.yaml").write_text(body if "version:" in body else HEAD + body)
    ran = run_main("plan", *NOBODY)
    assert (ran.code, ran.out, ran.err) == (1, "", textwrap.dedent(printed).lstrip("\n"))


@pytest.mark.parametrize(("text", "printed"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_lint_says_the_same_one_line_each(folder: Path, text: str, printed: str) -> None:
    body = textwrap.dedent(text).lstrip("\n")
    (folder / "trade.yaml").write_text(body if "version:" in body else HEAD + body)
    ran = run_main("lint", "trade.yaml")
    assert (ran.code, ran.err) == (1, "")
    *findings, summary = ran.out.splitlines()
    assert len(findings) == printed.count("Error: ") + printed.count("Warning: ")
    assert all(line.startswith("trade.yaml:") and " K" in line for line in findings)
    assert summary.startswith("1 file, ")
