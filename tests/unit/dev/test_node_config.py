"""The broker's configuration."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from kodoctl.dev import node_config
from kodoctl.dev.node_config import TokenPlaces
from kodoctl.dev.ports import Ports


def settings(text):
    """As a Java properties file is read: the last of two equal keys would win, so there must be none."""
    pairs = [line.split("=", 1) for line in text.splitlines()]
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


def test_addresses_of_the_instance_and_only_on_this_machine():
    found = settings(node_config.render(Ports(8081, 6651, 3182), "/x/tmp"))
    assert found["webServicePort"] == "8081"
    assert found["brokerServicePort"] == "6651"
    assert found["bindAddress"] == found["advertisedAddress"] == "127.0.0.1"
    assert found["listeningInterface"] in ("lo", "lo0")  # the storage, which knows no bindAddress
    assert found["narExtractionDirectory"] == "/x/tmp"


def test_what_a_declarative_tool_and_its_tests_rely_on():
    found = settings(node_config.render(Ports(), "/x"))
    expected = {
        "journalSyncData": "true",
        "allowAutoTopicCreation": "false",
        "brokerDeleteInactiveTopicsEnabled": "false",
        "systemTopicEnabled": "true",
        "topicLevelPoliciesEnabled": "true",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "delayedDeliveryTickTimeMillis": "100",
        "isDelayedDeliveryDeliverAtTimeStrict": "true",
        "delayedDeliveryFixedDelayDetectionLookahead": "0",
        "forceDeleteNamespaceAllowed": "true",
        "diskUsageThreshold": "0.999",
        "enableLocalTransport": "false",
        "allowEphemeralPorts": "true",
    }
    assert expected.items() <= found.items()
    assert "authenticationEnabled" not in found


def test_no_comments_or_blanks_reach_the_broker():
    for line in node_config.render(Ports(), "/x").splitlines():
        key, value = line.split("=", 1)
        assert key == key.strip() != ""
        assert value == value.strip() != ""
        assert "#" not in line


def test_tokens():
    found = settings(node_config.render(Ports(), "/x", tokens=TokenPlaces("secret.key", "file:///i/tokens/admin")))
    assert found["authenticationEnabled"] == found["authorizationEnabled"] == "true"
    assert found["superUserRoles"] == "admin,applier"
    assert found["tokenSecretKey"] == "secret.key"
    assert found["brokerClientAuthenticationParameters"] == "file:///i/tokens/admin"


def test_inside_a_container_it_listens_everywhere_and_is_still_reached_at_127_0_0_1():
    found = settings(node_config.render(Ports(), "/x", bind="0.0.0.0"))
    assert found["bindAddress"] == "0.0.0.0"
    assert "listeningInterface" not in found
    assert found["advertisedAddress"] == "127.0.0.1"


def test_packaged_files_are_well_formed_and_name_no_repository():
    for name in ("pom.xml", "log4j2.xml"):
        text = node_config.packaged_text(name)
        ET.fromstring(text)
        assert "<repositor" not in text
        assert "<url>" not in text
