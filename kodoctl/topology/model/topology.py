"""The topology file as people write it (format version 1).

Every field carries a description and an example: they become schemas/topology.v1.json, the reference and the
help in editors. Defaults that depend on other fields are resolved in `kodoctl.topology.defaults`, never here.
"""

from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictStr,
    Tag,
    WithJsonSchema,
    model_validator,
)

from kodoctl.topology.model.field_types import (
    DurationField,
    FileModel,
    NotEmpty,
    PositiveDuration,
    PositiveInt,
    Text,
    Words,
    defaults_of,
    optional_like,
    wrong_value,
)
from kodoctl.topology.model.function import Function, IoSource, PackageSpec, Sink
from kodoctl.topology.model.platform import Platform
from kodoctl.topology.model.policies import ClusterList, NamespacePolicies, TopicPolicies
from kodoctl.topology.model.source import Source
from kodoctl.topology.model.subscription import (
    ErrorText,
    HandlerSlots,
    Isolate,
    Limit,
    Lookahead,
    RetryingWaits,
    Route,
    StateWeights,
    Waits,
    Weight,
)
from kodoctl.topology.names import Level, State
from kodoctl.topology.units import Duration

VERSION: Final = 1
NEVER: Final = "never"  # as `keep` of payloads: they do not land
KEY: Final = "key"  # as `fair_by` or a limit's `by`: the message key


def _waiting_state(raw: Any) -> Any:
    if raw in ("ready", "dead"):
        raise wrong_value(
            f"{raw!r} has no place here: retrying, pending and blocking are the states that can be switched"
        )
    return raw


def _one_or_many(raw: Any) -> Any:
    return (raw,) if isinstance(raw, str) else raw


WaitingState = Annotated[
    State,
    BeforeValidator(_waiting_state),
    WithJsonSchema({"type": "string", "enum": ["retrying", "pending", "blocking"]}),
]
OneOrMany = Annotated[
    tuple[Words, ...],
    BeforeValidator(_one_or_many),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string"}}]}),
]
Address = Annotated[
    StrictStr,
    Field(
        pattern=r"^[a-z]+\.\S+$",
        json_schema_extra={
            "patternErrorMessage": "Should be the address of an object, as a plan prints it: KIND.NAME."
        },
    ),
]
Roles = tuple[Words, ...]
Action = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]


class Payload(FileModel):
    """Schema of a message's payload."""

    type: Literal["json", "avro"]
    """json: checked by producers and consumers. avro: also uploaded to Pulsar; it needs the extra `avro`."""
    schema_file: Annotated[Text, Field(alias="schema", examples=["../schemas/payloads/order.schema.json"])]
    """Path of the schema file, relative to this file; in the same repository, where it lies in one."""


def _json_path(text: str) -> str:
    from kodoctl.topology.json_paths import JsonPath

    try:
        JsonPath.parse(text)
    except ValueError as problem:
        raise wrong_value(str(problem)) from None
    return text


JsonPathText = Annotated[Text, AfterValidator(_json_path)]  # after the length: the error repeats the text


PayloadAge = Annotated[
    Annotated[Literal["never"], Tag("word")] | Annotated[PositiveDuration, Tag("value")],
    Discriminator(lambda raw: "word" if raw == NEVER else "value"),
]


class LandedPayloads(FileModel):
    """Payloads that `kodoctl pipeline ingest` lands. Identities, sizes and digests always land: no proof needs
    a payload.
    """

    keep: PayloadAge | None = optional_like("7d", "never")
    """Days until `pipeline maintain` removes them, or never: they do not land at all. Left out: they stay."""
    mask: Annotated[tuple[JsonPathText, ...], Field(max_length=100)] = Field(
        default=(), examples=[["$.customer.email", "$.lines[*].iban"]]
    )
    """JSON paths whose values are replaced by *** before they land. With any, a payload that is no JSON does not land."""


def _not_zero(raw: Any) -> Any:
    if raw == 0 and raw is not False:
        raise wrong_value("0: a plain topic, without partitions, is written `partitioned: false`")
    return raw


Partitions = Annotated[PositiveInt, BeforeValidator(_not_zero)]


def _check_partitions(topic: "DeadLetter | GroundTopic") -> None:
    if not topic.partitioned and "partitions" in topic.model_fields_set:
        raise wrong_value("`partitions` and `partitioned: false` stand here: a plain topic has none; write one of them")


class DeadLetter(TopicPolicies):
    """The dead letter topic of a subscription; takes any topic policy."""

    partitions: Partitions = Field(default=1, examples=[1])
    """Partitions of the dead letter topic."""
    partitioned: StrictBool = Field(default=True, examples=[False])
    """false: a plain topic, without partitions, as Pulsar creates by itself."""

    @model_validator(mode="after")
    def _partitions_fit(self) -> Self:
        _check_partitions(self)
        return self


class Audit(TopicPolicies):
    """The topic with a subscription's transition records; takes any topic policy."""

    mode: Literal["wait", "best_effort"] = "wait"
    """wait: acknowledge only after the record's receipt. best_effort: do not wait (the pipeline's verdict stays inconclusive)."""


Word = TypeVar("Word")
Map = TypeVar("Map")
WordOrMap = Annotated[
    Annotated[Word, Tag("word")] | Annotated[Map, Tag("map")],
    Discriminator(lambda raw: "map" if isinstance(raw, dict | FileModel) else "word"),
]


def _form_of_concurrency(raw: Any) -> str:
    if isinstance(raw, str):
        return "word"
    return "map" if isinstance(raw, dict | FileModel) else "value"


class Subscription(FileModel):
    """One subscription of a ground topic: its states, its consumers' behaviour, its roles."""

    type: Literal["shared", "key_shared", "failover", "exclusive"] = "shared"
    """How the ready lanes are shared among consumers; all but shared keep order."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where the subscription begins on L1: used once, when it is created."""
    states: tuple[WaitingState, ...] = Field(
        default=(State.RETRYING, State.PENDING, State.BLOCKING), examples=[["retrying", "pending", "blocking"]]
    )
    """States that have topics. [] = none."""
    dead_letter: WordOrMap[StrictBool, DeadLetter] = Field(
        default=True, examples=[{"ttl": "unlimited", "partitions": 1}]
    )
    """true = with defaults, false = none, or a map of topic policies and partitions."""
    draining: tuple[WaitingState, ...] = Field(default=(), examples=[["blocking"]])
    """States that are still read but no longer written: the way to remove one without losing messages."""
    workers: Roles = Field(default=(), examples=[["billing-worker"]])
    """Roles of the workers, expanded to least privilege."""
    recall: Roles = Field(default=(), examples=[["billing-sre"]])
    """Roles that may read the dead letters and send them back."""
    produces: tuple[Text, ...] = Field(default=(), examples=[["shipments"]])
    """Topics its handler sends to: ground topics of this file, or TENANT/NAMESPACE/TOPIC. The flow graph."""
    expected_workers: PositiveInt = Field(default=1, examples=[2])
    """How many workers will run: for limits and unacknowledged budgets."""
    concurrency: Annotated[
        Annotated[PositiveInt, Tag("value")]
        | Annotated[Literal["adaptive"], Tag("word")]
        | Annotated[HandlerSlots, Tag("map")],
        Discriminator(_form_of_concurrency),
    ] = Field(
        default=32, examples=[32, {"total": 32, "states": {"retrying": {"max": 8}}, "levels": {"L2": {"min": 4}}}]
    )
    """Handlers at once in one worker, adaptive, or a map with bulkheads: slots that states and levels may take, or keep."""
    handler_timeout: PositiveDuration = Field(default=Duration(30_000), examples=["30s"])
    """A handler that runs longer has failed."""
    on_failure: Literal["park", "block", "leave"] | None = optional_like("park")
    """For key_shared, failover and exclusive. park: the key waits, then its message dies. block: waits without end. leave: as shared."""
    isolate: WordOrMap[Literal["off"], Isolate] = Field(
        default_factory=defaults_of(Isolate), examples=[{"share": "25%", "min": 1000}]
    )
    """How a tenant that fills the look-ahead is moved aside, or off."""
    lookahead: Lookahead = Field(
        default_factory=defaults_of(Lookahead), examples=[{"messages": 50_000, "size": "128MiB"}]
    )
    """What a worker may hold unacknowledged to be fair."""
    audit: WordOrMap[StrictBool | Literal["best_effort"], Audit] = Field(default=False, examples=[True])
    """Whether workers record every transition on an audit topic."""
    error_text: WordOrMap[StrictBool, ErrorText] = Field(
        default=False, examples=[{"keep": "500B", "redact": ["[0-9]{13,16}"]}]
    )
    """Whether an error's text and stack travel with the message that failed: false, true, or how much and what is redacted."""
    tenant_weights: dict[Text, PositiveInt] = Field(default_factory=dict, examples=[{"u1": 3}])
    """Shares of single tenants within a lane; others have 1."""
    weights: StateWeights = Field(
        default_factory=defaults_of(StateWeights),
        examples=[{"ready": 50, "retrying": 30, "pending": 15, "blocking": 5}],
    )
    """Shares of the states within a level."""
    level_weights: dict[Level, Weight] = Field(default_factory=dict, examples=[{"L2": 20, "L1": 10, "B1": 5}])
    """Shares of the levels; default S 30, L 20 (L1 10), B 5, D 2."""
    in_place: tuple[DurationField, ...] = Field(
        default=(Duration(2000), Duration(3000), Duration(5000)), examples=[["2s", "3s", "5s"]]
    )
    """Waits in memory before a failing message leaves its lane; at most 5s each."""
    retrying: RetryingWaits = Field(
        default_factory=defaults_of(RetryingWaits), examples=[{"delays": ["10s", "1m", "5m"], "attempts": 12}]
    )
    """Waits after failures."""
    pending: Waits = Field(default_factory=defaults_of(Waits), examples=[{"delays": ["1m"], "attempts": 60}])
    """Waits over a rate."""
    blocking: Waits = Field(default_factory=defaults_of(Waits), examples=[{"delays": ["1h"], "attempts": 24}])
    """Waits over a quota."""
    backup: Waits = Field(
        default_factory=defaults_of(Waits), examples=[{"delays": ["1m", "5m", "30m", "1h"], "attempts": 24}]
    )
    """Waits after failures in backup levels."""
    compat: Literal["soften"] | None = optional_like("soften")
    """Whose headers workers read on messages that carry no control properties: to take over what the Go library left."""
    limits: tuple[Limit, ...] = Field(default=(), examples=[[{"kind": "rate", "by": "uid", "limit": "100/s"}]])
    """Limits on handler starts, handlers at once and messages per window."""
    routes: tuple[Route, ...] = Field(
        default=(), examples=[[{"when": {"property": "size", "greater_than": 100000}, "to": "B1"}]]
    )
    """Routes to other levels; the first match wins."""


class GroundTopic(FileModel):
    """A business topic and the family that belongs to it."""

    description: StrictStr = Field(default="", examples=["one message for each order"])
    """A text for people."""
    owners: OneOrMany = Field(default=(), examples=["checkout-team", ["checkout-team", "on-call@shop.example"]])
    """Who answers for the topic: teams or people, in place of the file's `owners`."""
    labels: dict[Words, Words] = Field(default_factory=dict, examples=[{"tier": "gold"}])
    """Words to find and to judge topics by, over the file's `labels`, key by key. Pulsar gets none of them."""
    partitions: Partitions | None = optional_like(4)
    """Partitions of the whole family (dead letters have their own number). Can grow, never shrink."""
    partitioned: StrictBool = Field(default=True, examples=[False])
    """false: plain topics, without partitions, as Pulsar creates by itself; the whole family but the dead letters. For good."""
    levels: Annotated[
        Annotated[Literal["single", "double"], Tag("word")] | Annotated[tuple[Level, ...], Tag("map")],
        Discriminator(lambda raw: "word" if isinstance(raw, str) else "map"),
    ] = Field(default="single", examples=["double", ["L1", "L2"]])
    """single = [L1], double = [L1, L2], or a list with L1 in it."""
    backup: StrictBool = Field(default=False, examples=[True])
    """Adds level B1, the last stop before dead letters."""
    draining: tuple[Level, ...] = Field(default=(), examples=[["L2"]])
    """Levels on their way out, for all subscriptions: still read, no longer written."""
    exclusive_levels: dict[Level, NotEmpty[Text]] = Field(default_factory=dict, examples=[{"L2": ["u7"]}])
    """Levels that admit only these tenants (values of `fair_by`), who are sent there and to no other but backups."""
    payload: Payload | None = optional_like({"type": "json", "schema": "../schemas/payloads/order.schema.json"})
    """What payloads must look like."""
    payloads: LandedPayloads | None = optional_like({"keep": "7d", "mask": ["$.customer.email"]})
    """What lands of its payloads, in place of the whole file's `payloads`."""
    compression: Literal["lz4", "zlib", "zstd", "snappy", "none"] = Field(default="none", examples=["zstd"])
    """How senders compress messages to the whole family: producers, relays, workers' moves, audit records and recalls."""
    message_properties: dict[Text, Literal["required", "optional"]] = Field(
        default_factory=dict, examples=[{"uid": "required", "size": "optional"}]
    )
    """Properties that producers send along. A producer of Producer.load refuses a message without a required one."""
    fair_by: Text | None = optional_like("uid")
    """The message property (or `key`) that names the tenant; left out: everybody is one tenant."""
    policies: TopicPolicies = Field(
        default_factory=defaults_of(TopicPolicies), examples=[{"retention": {"time": "7d", "size": "20GiB"}}]
    )
    """Policies of the whole family."""
    state_policies: TopicPolicies = Field(default_factory=defaults_of(TopicPolicies), examples=[{"ttl": "unlimited"}])
    """Policies of the state topics, over `policies`."""
    replication: ClusterList | None = optional_like(["east", "west"])
    """Clusters the whole family is replicated to: short for `policies: {replication: …}`. Managed only where named."""
    ignore: tuple[Text, ...] = Field(default=(), examples=[["publish_rate"]])
    """Policies someone else sets: neither shown nor touched, in the whole family."""
    producers: Roles = Field(default=(), examples=[["checkout"]])
    """Roles that may produce on the ready topics."""
    subscriptions: dict[Text, Subscription] = Field(
        default_factory=dict, examples=[{"billing": {"states": ["retrying"]}}]
    )
    """Subscriptions by name."""

    @model_validator(mode="after")
    def _partitions_fit(self) -> Self:
        _check_partitions(self)
        return self

    @model_validator(mode="after")
    def _replication_once(self) -> Self:
        if self.replication is not None and self.policies.replication is not None:
            raise wrong_value("`replication` stands here and in `policies`: write it once")
        return self


class Defaults(FileModel):
    """Values for every topic of the file."""

    partitions: PositiveInt = Field(default=1, examples=[4])
    """Partitions of every family."""
    policies: TopicPolicies = Field(
        default_factory=defaults_of(TopicPolicies), examples=[{"retention": {"time": "3d", "size": "10GiB"}}]
    )
    """Policies of every topic."""
    state_policies: TopicPolicies = Field(default_factory=defaults_of(TopicPolicies), examples=[{"ttl": "unlimited"}])
    """Policies of every state topic."""


class CreateTenant(FileModel):
    """The Pulsar tenant, when this file is to create it."""

    clusters: ClusterList = Field(examples=[["standalone"]])
    """Clusters the tenant may use."""
    admin_roles: Roles = Field(default=(), examples=[["platform"]])
    """Roles that administer the tenant."""


class Topology(FileModel):
    """A topology file, format version 1."""

    version: Literal[1]
    """Format version of this file."""
    name: Text = Field(examples=["trade"])
    """The owner: a marker on every topic, an entry in the ownership ledger. Renamed? add `formerly`."""
    formerly: OneOrMany = Field(default=(), examples=["old-name"])
    """Earlier names: what they own is taken over."""
    description: StrictStr = Field(default="", examples=["Orders and shipments"])
    """A text for people."""
    owners: OneOrMany = Field(default=(), examples=["shop-team", ["shop-team", "platform"]])
    """Who answers for the topology and for its topics: teams or people, one or several."""
    labels: dict[Words, Words] = Field(default_factory=dict, examples=[{"cost-center": "4711", "tier": "gold"}])
    """Words to find and to judge topologies by, inherited by all topics. Pulsar gets none of them."""
    tenant: Text = Field(examples=["kodo"])
    """The Pulsar tenant."""
    namespace: Text = Field(examples=["trade"])
    """The Pulsar namespace in it."""
    create_tenant: CreateTenant | None = optional_like({"clusters": ["standalone"], "admin_roles": ["platform"]})
    """Create the Pulsar tenant if it is absent (needs a super-user)."""
    namespace_policies: NamespacePolicies | None = optional_like({"retention": {"time": "3d", "size": "20GiB"}})
    """This file owns the namespace object; at most one file a namespace has this key (it may be {})."""
    namespace_grants: dict[Text, tuple[Action, ...]] = Field(default_factory=dict, examples=[{"planner": ["consume"]}])
    """Permissions on the whole namespace, by role."""
    defaults: Defaults = Field(default_factory=defaults_of(Defaults), examples=[{"partitions": 4}])
    """Values for every topic below."""
    payloads: LandedPayloads | None = optional_like({"keep": "7d", "mask": ["$.customer.email"]})
    """What the pipeline lands of payloads, in topics that say nothing else."""
    topics: dict[Text, GroundTopic] = Field(examples=[{"orders": {"subscriptions": {"billing": {}}}}])
    """Ground topics by name."""
    sources: dict[Text, Source] = Field(
        default_factory=dict,
        examples=[{"shop-db": {"database": "SHOP_DATABASE_URL", "tables": {"public.orders": {"topic": "orders"}}}}],
    )
    """Databases whose committed changes become messages, by name."""
    packages: dict[Text, PackageSpec] = Field(
        default_factory=dict, examples=[{"function://kodo/trade/enrich@1.2.0": {"file": "build/enrich-1.2.0.jar"}}]
    )
    """Packages to upload, by TYPE://TENANT/NAMESPACE/NAME@VERSION in this namespace; TYPE is function, sink or source. A version keeps its content for good."""
    functions: dict[Text, Function] = Field(
        default_factory=dict,
        examples=[{"enrich": {"package": "builtin://enrich", "inputs": ["orders"], "output": "shipments"}}],
    )
    """Pulsar Functions between topics, by name; they need a cluster with a function worker."""
    sinks: dict[Text, Sink] = Field(
        default_factory=dict, examples=[{"warehouse": {"package": "builtin://jdbc-postgres", "inputs": ["orders"]}}]
    )
    """Sinks of Pulsar IO, which copy topics to other systems, by name; run by the function worker."""
    io_sources: dict[Text, IoSource] = Field(
        default_factory=dict, examples=[{"uploads": {"package": "builtin://file", "output": "orders"}}]
    )
    """Sources of Pulsar IO, which write what other systems have to topics, by name; run by the function worker. (`sources` are databases that kodoctl reads itself.)"""
    platform: Platform | None = optional_like(
        {"tenants": {"shop": {"clusters": ["standalone"], "admin_roles": ["shop-admins"]}}}
    )
    """Objects of the whole cluster that this file owns: Pulsar tenants, clusters, resource groups, isolation of brokers."""
    environments: dict[Text, dict[str, Any]] = Field(
        default_factory=dict, examples=[{"prod": {"production": True, "defaults": {"partitions": 16}}}]
    )
    """Overlays: JSON merge patch (RFC 7396). null deletes, lists replace; `production: true` switches the stricter rules on."""
    allow_destroy: tuple[Address, ...] = Field(default=(), examples=[["topic.persistent://kodo/trade/orders-L2"]])
    """Addresses whose data an apply may destroy, as long as they stand here."""
    forget: tuple[Address, ...] = Field(default=(), examples=[["topic.persistent://kodo/trade/old"]])
    """Addresses that leave our ownership without being touched."""
