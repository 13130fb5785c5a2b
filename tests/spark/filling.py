"""Topics with numbered messages in batches and many ledgers, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kodo_pipeline.source.options import Options, read_options

from tests.brokers.workspace import Workspace

BODY = b"x" * 200


def unload(workspace: Workspace, local: str, partition: int) -> None:
    """Closes the open ledger of a partition."""
    workspace.admin("PUT", f"{workspace.path(local)}-partition-{partition}/unload")


def keep(workspace: Workspace, minutes: int = -1) -> None:
    """A namespace that keeps what nobody has subscribed to (0: keeps nothing)."""
    policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": minutes}
    workspace.admin("POST", f"namespaces/{workspace.namespace}/retention", policy)


def fill(workspace: Workspace, local: str, numbers: Iterable[int], partitions: int, ledgers: int = 1) -> None:
    """Messages with their number as property `n`, spread over the partitions; each round ends in a ledger of its own."""
    listed = list(numbers)
    size = -(-len(listed) // ledgers)
    with workspace.client() as client:
        for start in range(0, len(listed), size):
            for partition in range(partitions):
                producer = client.create_producer(
                    f"{workspace.full(local)}-partition-{partition}",
                    batching_enabled=True,
                    batching_max_messages=50,
                    batching_max_publish_delay_ms=20,
                    block_if_queue_full=True,
                )
                for number in listed[start : start + size]:
                    if number % partitions == partition:
                        producer.send_async(BODY, None, properties={"n": str(number)}, partition_key=f"k{number % 7}")
                producer.flush()
                producer.close()
                if ledgers > 1:
                    unload(workspace, local, partition)


def source_options(workspace: Workspace, *locals_: str, **more: str) -> dict[str, str]:
    """What the source is told."""
    return {
        "topics": ",".join(workspace.full(local) for local in locals_),
        "adminUrl": workspace.broker.admin_url,
        "serviceUrl": workspace.broker.broker_url,
        "timeoutMs": "3000",
        **more,
    }


def core_options(workspace: Workspace, local: str, coverage: Path | None = None, **more: str) -> Options:
    """The same for the core."""
    asked = source_options(workspace, local, **more) | ({"coverage": str(coverage)} if coverage else {})
    return read_options(asked, 2)
