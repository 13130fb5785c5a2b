"""Models of a rules file: rules, their tests, shipped sets, exemptions."""

from datetime import date
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from kodoctl.topology.model.field_types import FileModel, Text, Words, optional_like, wrong_value

RULES_VERSION: Final = 1
Code = Annotated[
    Text, Field(pattern=r"^K[0-9]{3}$", json_schema_extra={"patternErrorMessage": "Should be a code, such as K204."})
]


def _calendar_day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise wrong_value(f"{text} is no day of the calendar") from None
    return text


Day = Annotated[
    Text,
    Field(
        pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$",
        json_schema_extra={"patternErrorMessage": "Should be a day, such as 2027-01-31."},
    ),
    AfterValidator(_calendar_day),
]
Kind = Literal["topologies", "topics", "subscriptions", "pulsar_topics"]


class FieldTest(FileModel):
    """Tests of one value; all of them have to hold. Of a list, `in`, `not_in` and `matches` judge each entry,
    `at_least` and `at_most` the number of entries.
    """

    present: StrictBool | None = optional_like(True)
    """true: there has to be a value; an empty text, list or map is none. false: there may be none."""
    equals: Any = Field(default=None, examples=[False, "zstd"])
    """The value, as a topology file writes it. `key: value` is short for `key: {equals: value}`."""
    in_: tuple[Any, ...] | None = Field(default=None, alias="in", examples=[["shared", "key_shared"]])
    """Values that are allowed."""
    not_in: tuple[Any, ...] | None = optional_like(["evict"])
    """Values that are not allowed. A field without a value passes."""
    includes: tuple[Any, ...] | None = optional_like(["east", "west"])
    """Entries that the list has to have."""
    at_least: Any = Field(default=None, examples=["3d", 3])
    """Least number, duration, size or rate, with its unit. `unlimited` is more than any."""
    at_most: Any = Field(default=None, examples=["90d", 64])
    """Greatest number, duration, size or rate, with its unit."""
    matches: Text | None = optional_like("[a-z]+(-[a-z]+)*")
    """Regular expression for the whole text."""
    optional: StrictBool = Field(default=False, examples=[True])
    """true: there may be no value; one that is there is tested."""

    @property
    def operands(self) -> dict[str, Any]:
        """Operator, as the file writes it -> its value in the file; without `optional`."""
        given = self.model_fields_set - {"optional"}
        return {name.rstrip("_"): getattr(self, name) for name in type(self).model_fields if name in given}

    @model_validator(mode="after")
    def _can_hold(self) -> Self:
        if not self.operands:
            raise wrong_value("should have a test: present, equals, in, not_in, includes, at_least, at_most or matches")
        if empty := next((name for name, raw in self.operands.items() if raw is None), None):
            raise wrong_value(f"`{empty}` is empty; `present: false` holds where there is no value")
        if self.present is False and (len(self.operands) > 1 or self.optional):
            raise wrong_value("`present: false` stands alone: no other test of a value that may not be there can hold")
        if self.present and self.optional:
            raise wrong_value("`present: true` and `optional: true` contradict each other: write one of them")
        return self


def _as_test(raw: Any) -> Any:
    return raw if isinstance(raw, dict | FieldTest) else {"equals": raw}


Tests = dict[Text, Annotated[FieldTest, BeforeValidator(_as_test)]]


class TeamRule(FileModel):
    """One rule: the objects that it is about, and what they have to have; or a code of lint that becomes an error."""

    because: Words = Field(examples=["Somebody is paged for every topic."])
    """The reason, in the team's own words: every finding has it."""
    hint: Words | None = optional_like("Ask in #messaging for a name.")
    """Advice that every finding of the rule shows, such as whom to ask."""
    of: Kind | None = optional_like("topics")
    """Kind of the objects that the rule judges. pulsar_topics: each topic that a file stands for, dead letters and audit included."""
    where: Tests = Field(default_factory=dict, examples=[{"labels.tier": "gold"}])
    """Only objects with these values are judged; paths and tests as in `require`."""
    require: Tests = Field(default_factory=dict, examples=[{"owners": {"present": True}}])
    """Path of a value in the object -> what it has to be. Paths are those of the topology file, below the object."""
    condition: Text | None = optional_like("expected_workers <= partitions OR type IN ('shared', 'key_shared')")
    """A condition that has to be true, in the language of conditions, over the same paths; beside or without `require`."""
    code: Code | None = Field(default=None, examples=["K305"])
    """In place of `of` and `require`: findings of lint with this code are errors, and no comment allows them."""
    severity: Literal["error", "warning"] = "error"
    """error: lint and plan refuse; warning: they go on, lint not with --strict."""
    environments: tuple[Text, ...] = Field(default=(), examples=[["prod", "base"]])
    """Only in these environments; `base` is the file without overlay. Left out: in all."""
    production: StrictBool | None = optional_like(True)
    """true: only in environments with `production: true`; false: only in the others."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        fields = sorted({"of", "where", "require", "condition", "severity"} & self.model_fields_set)
        if self.code is not None and fields:
            raise wrong_value(f"`code` makes a finding of lint an error: it goes without `{fields[0]}`")
        if self.code is None and (self.of is None or not (self.require or self.condition)):
            raise wrong_value("should have `of` with `require` or `condition`, or `code`")
        return self


class SetUse(FileModel):
    """How a shipped set is used; {} takes it as it is."""

    without: tuple[Text, ...] = Field(default=(), examples=[["one-source"]])
    """Rules of the set that do not count."""


class Exemption(FileModel):
    """Objects that a rule does not refuse, with a reason and an end."""

    rule: Text = Field(examples=["owners", "production/one-source"])
    """Name of the rule; a rule of a shipped set is SET/RULE."""
    object: Text = Field(examples=["trade/orders", "trade/*"])
    """TOPOLOGY, TOPOLOGY/TOPIC or TOPOLOGY/TOPIC/SUBSCRIPTION; `*` stands for any text."""
    because: Words = Field(examples=["moves to another team in March"])
    """The reason; lint shows it."""
    until: Day | None = optional_like("2027-03-31")
    """Last day (UTC) on which it counts."""


class RulesFile(FileModel):
    """Rules for all topologies at and below the folder of this file."""

    version: Literal[1]
    """Format version of this file."""
    use: dict[Text, SetUse] = Field(default_factory=dict, examples=[{"production": {}}])
    """Shipped sets of rules: `production`."""
    rules: dict[Text, TeamRule] = Field(
        default_factory=dict,
        examples=[
            {"owners": {"because": "Somebody is paged.", "of": "topics", "require": {"owners": {"present": True}}}}
        ],
    )
    """Rules by name."""
    exempt: tuple[Exemption, ...] = Field(
        default=(), examples=[[{"rule": "owners", "object": "trade/old", "because": "goes away in March"}]]
    )
    """Exemptions."""
