"""Which triggers are accelscale's, and each of them read with the real parser.

Triggers of other scalers are none of ours, other external scalers among them. One is ours if its
address says so, if a value is the name of a metric, or if its keys are ours and no others.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

import attrs
from attrs import frozen

from accelscale.errors import ConfigurationError
from accelscale.lab.check.documents import Mapping as Node
from accelscale.lab.check.documents import Scalar
from accelscale.lab.check.findings import Hit, Path, Rule, Severity
from accelscale.lab.check.manifests import EXTERNAL_TYPES
from accelscale.lab.check.scalars import Kind, kind_of
from accelscale.lab.check.schema import UTILIZATION
from accelscale.metrics import METRICS, Metric
from accelscale.profiles import PROFILES
from accelscale.trigger import KEDA_KEYS, KEYS, MetricType, Trigger, parse_trigger

TRIGGER_KEY = Rule(
    "AS101",
    "trigger-key",
    Severity.ERROR,
    "The scaler refuses the trigger as KEDA sends it: KEDA gets an error in place of every number,"
    " and the workload stays as it is.",
    "Correct the key; the reference of triggers lists what each may hold.",
)
NOT_TEXT = Rule(
    "AS102",
    "value-not-text",
    Severity.ERROR,
    "Every value in a trigger's metadata is text to KEDA. The API server refuses numbers, truth"
    " values (yes, no, on and off are such too), lists and mappings.",
    "Put the value in quotes.",
)
WRONG_TRIGGER_TYPE = Rule(
    "AS109",
    "trigger-type",
    Severity.ERROR,
    "KEDA knows external scalers by the types external and external-push alone, and refuses the"
    " ScaledObject otherwise.",
    "Write type: external or type: external-push.",
)
SCALER_ADDRESS = Rule(
    "AS110",
    "scaler-address",
    Severity.ERROR,
    "KEDA reaches an external scaler over gRPC at the address in the trigger, as host and port;"
    " it is no URL.",
    "Write scalerAddress: NAME.NAMESPACE.svc:6000.",
)
UTILIZATION_TYPE = Rule(
    "AS112",
    "utilization-type",
    Severity.ERROR,
    "metricType Utilization is for KEDA's cpu and memory triggers: it is a share of what pods"
    " request. KEDA refuses it for all others, for percentages too.",
    "Remove metricType (AverageValue is right for a percentage), or write Value.",
)
FROM_ENVIRONMENT = Rule(
    "AS115",
    "not-checked",
    Severity.NOTE,
    "KEDA reads the value from the container's environment, which does not stand in this file, so"
    " the trigger could not be checked as a whole.",
    "Check the object together with its workload, where the variable has a literal value.",
)
KEY_WITHOUT_VALUE = Rule(
    "AS116",
    "key-without-value",
    Severity.WARNING,
    "A key without a value counts as not written; a template may have left it empty.",
    "Write a value, or remove the key.",
)
ADDRESS_WITHOUT_PORT = Rule(
    "AS117",
    "address-without-port",
    Severity.WARNING,
    "gRPC takes port 443 where none is written; accelscale listens on 6000 unless told otherwise.",
    "Write the port: NAME.NAMESPACE.svc:6000.",
)
RULES = (
    TRIGGER_KEY,
    NOT_TEXT,
    WRONG_TRIGGER_TYPE,
    SCALER_ADDRESS,
    UTILIZATION_TYPE,
    FROM_ENVIRONMENT,
    KEY_WITHOUT_VALUE,
    ADDRESS_WITHOUT_PORT,
)

ALIKE = 0.8
"""From here on a strange key counts as one of ours with a slip in it."""


@frozen(eq=False)
class OwnTrigger:
    """One trigger of accelscale.

    ``texts`` is the metadata as the scaler gets it. ``trigger`` and ``metric`` are None where it
    would be refused, or where the environment has the last word. The trigger's ``metric_type`` is
    the one that KEDA's own field says, for that is what the HPA goes by.
    """

    index: int
    node: Node
    texts: Mapping[str, str]
    trigger: Trigger | None = None
    metric: Metric | None = None

    @property
    def path(self) -> Path:
        """Where it stands."""
        return ("spec", "triggers", self.index)

    def key(self, key: str) -> Path:
        """Where a key of its metadata stands, or would stand."""
        metadata = self.node.mapping("metadata")
        if key not in metadata.entries and f"{key}FromEnv" in metadata.entries:
            key = f"{key}FromEnv"
        if key not in metadata.entries and "profile" in metadata.entries:
            key = "profile"  # it brought the value
        return (*self.path, "metadata", key)

    def wrote(self, key: str) -> bool:
        """Whether the user wrote this key, rather than a profile or a default."""
        return bool(self.texts.get(key))


def is_own(trigger: Node) -> bool:
    """Whether this trigger is for accelscale."""
    metadata = trigger.mapping("metadata")
    texts = {key: metadata.text(key) for key in metadata.entries}
    external = trigger.text("type") in EXTERNAL_TYPES
    if not external and "scalerAddress" not in texts:
        return False
    if external and isinstance(trigger.get("metadata"), Node) and not texts:
        return True  # nobody's, and no external scaler takes it
    if "accelscale" in texts.get("scalerAddress", "").lower():
        return True
    if any(text in METRICS for text in texts.values()):
        return True
    if any(_is_strange(key) for key in texts):
        return False
    profile = texts.get("profile", "").lower()
    return "metric" in texts or bool(difflib.get_close_matches(profile, PROFILES, 1, ALIKE))


def _is_strange(key: str) -> bool:
    plain = key.removesuffix("FromEnv")
    if plain in KEYS or plain in KEDA_KEYS:
        return False
    return not difflib.get_close_matches(plain, [*KEYS, *KEDA_KEYS], 1, ALIKE)


class Reader:
    """Reads one trigger and gathers what is wrong with it."""

    def __init__(
        self, metrics: Mapping[str, Metric], environment: Mapping[str, str] | None
    ) -> None:
        self._metrics = metrics
        self._environment = environment or {}
        self._unresolved: dict[str, str] = {}
        self.hits: list[tuple[Rule, Hit]] = []

    def read(self, index: int, node: Node) -> OwnTrigger:
        """The trigger, as far as it can be read; what is wrong with it is in ``hits``."""
        own = OwnTrigger(index, node, {})
        texts = self._texts(own)
        own = attrs.evolve(own, texts=texts)
        self._frame(own)
        try:
            trigger = parse_trigger(texts, metrics=self._metrics)
        except ConfigurationError as error:
            for fault in error.faults:
                if fault.value is not None or fault.key not in self._unresolved:
                    missing = (*own.path, "metadata")
                    path = own.key(fault.key) if fault.value is not None else missing
                    self.hits.append((TRIGGER_KEY, Hit(str(fault), path)))
            self._tell_unresolved(own)
            return own
        self._tell_unresolved(own)
        if self._unresolved:
            return own  # a value from elsewhere may replace any default
        trigger = attrs.evolve(trigger, metric_type=metric_type(node))
        return attrs.evolve(own, trigger=trigger, metric=self._metrics[trigger.metric])

    def _texts(self, own: OwnTrigger) -> dict[str, str]:
        texts = {}
        for key, entry in own.node.mapping("metadata").entries.items():
            path = (*own.path, "metadata", key)
            kind = kind_of(entry.value)
            if kind is Kind.NULL:
                self.hits.append((KEY_WITHOUT_VALUE, Hit(f"{key} has no value", path)))
                continue
            if kind is not Kind.TEXT:
                self.hits.append((NOT_TEXT, _not_text(key, kind, entry.value, path)))
            if isinstance(entry.value, Scalar):
                texts[key] = entry.value.text
        return self._resolved(texts)

    def _resolved(self, texts: dict[str, str]) -> dict[str, str]:
        for key in [key for key in texts if key.removesuffix("FromEnv") in KEYS]:
            plain = key.removesuffix("FromEnv")
            if plain == key:
                continue
            variable = texts.pop(key)
            if texts.get(plain):
                continue
            if variable in self._environment:
                texts[plain] = self._environment[variable]
            else:
                self._unresolved[plain] = variable
        return texts

    def _frame(self, own: OwnTrigger) -> None:
        """What stands around the metadata, and the address, which is KEDA's."""
        kind = own.node.text("type")
        if kind and kind not in EXTERNAL_TYPES:
            hit = Hit(f"type {kind} is none of {', '.join(EXTERNAL_TYPES)}", (*own.path, "type"))
            self.hits.append((WRONG_TRIGGER_TYPE, hit))
        if own.node.text("metricType") == UTILIZATION:
            hit = Hit("metricType Utilization on an external trigger", (*own.path, "metricType"))
            self.hits.append((UTILIZATION_TYPE, hit))
        for rule, problem in _address_problems(own.texts):
            self.hits.append((rule, Hit(problem, (*own.path, "metadata", _ADDRESS))))

    def _tell_unresolved(self, own: OwnTrigger) -> None:
        for key, variable in self._unresolved.items():
            message = f"{key} comes from the variable {variable}, whose value is not known here"
            self.hits.append((FROM_ENVIRONMENT, Hit(message, own.key(key))))


_ADDRESS = "scalerAddress"


def metric_type(trigger: Node) -> MetricType:
    """What KEDA's field says; AverageValue where it says nothing, or nothing that KEDA takes."""
    text = trigger.text("metricType")
    return MetricType(text) if text in set(MetricType) else MetricType.AVERAGE_VALUE


def _not_text(key: str, kind: Kind, node: object, path: Path) -> Hit:
    fix = f'Put it in quotes: {key}: "{node.text}".' if isinstance(node, Scalar) else None
    return Hit(f"{key} is {kind} and must be text", path, fix)


def _address_problems(texts: Mapping[str, str]) -> Iterator[tuple[Rule, str]]:
    address = texts.get(_ADDRESS, "")
    if not address:
        if f"{_ADDRESS}FromEnv" not in texts:
            yield SCALER_ADDRESS, f"{_ADDRESS} is missing"
    elif _URL.match(address):
        yield SCALER_ADDRESS, f"{_ADDRESS} {address} is a URL, and must be host and port"
    elif not _PORT.search(address) and not address.startswith("unix:"):
        yield ADDRESS_WITHOUT_PORT, f"{_ADDRESS} {address} has no port"


_URL = re.compile(r"(?:https?|grpcs?|tcp)://", re.IGNORECASE)
_PORT = re.compile(r"(?<=[^:/]):[0-9]{1,5}/?$")
