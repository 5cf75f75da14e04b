"""A ScaledObject as its manifest says it: bounds, times and behaviour for the model, and triggers.

Triggers of accelscale go through the real parser. Those of other scalers are left out, for a
recording of hardware cannot answer them, and are named so that nobody overlooks it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import yaml
from attrs import frozen

from accelscale.errors import ConfigurationError, Fault, NotFoundError, UnsupportedError
from accelscale.hpa import (
    Behavior,
    Fallback,
    FallbackBehavior,
    KedaTrigger,
    Pause,
    PolicyType,
    ScaledObject,
    ScalingRules,
    SelectPolicy,
)
from accelscale.hpa import (
    Policy as HpaPolicy,
)
from accelscale.metrics import METRICS, Metric
from accelscale.profiles import PROFILES
from accelscale.trigger import KEYS, MetricType, Trigger, parse_trigger

Document = Mapping[str, Any]
Choice = TypeVar("Choice", bound=StrEnum)

EXTERNAL_TYPES = ("external", "external-push")
SPEC_KEYS = (
    "minReplicaCount",
    "maxReplicaCount",
    "idleReplicaCount",
    "pollingInterval",
    "cooldownPeriod",
    "initialCooldownPeriod",
)
BEHAVIOR_KEYS = ("scaleUp.stabilizationWindowSeconds", "scaleDown.stabilizationWindowSeconds")


@frozen
class Policy:
    """What decides about the replicas of one workload.

    ``triggers`` are accelscale's, in step with those of ``scaled_object``; ``pushes`` says whether
    one of them is of type external-push. ``left_out`` names the triggers of other scalers.
    """

    name: str
    namespace: str
    scaled_object: ScaledObject
    triggers: tuple[Trigger, ...]
    pushes: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that its triggers look at."""
        return tuple(dict.fromkeys(trigger.metric for trigger in self.triggers))


def scaled_objects(text: str, *, subject: str = "manifest") -> list[Document]:
    """The ScaledObjects of a YAML stream, other documents left aside.

    Raises:
        ConfigurationError: this is no YAML; the message names line and column.
        NotFoundError: there is no ScaledObject in it.
    """
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else subject
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigurationError([Fault(place, None, str(problem))], subject=subject) from error
    found = [document for document in _flat(documents) if document.get("kind") == "ScaledObject"]
    if not found:
        kinds = ", ".join(sorted({str(d.get("kind")) for d in _flat(documents)})) or "nothing"
        raise NotFoundError(f"{subject}: no ScaledObject in it (found: {kinds})")
    return found


def wanted_metrics(document: Document) -> set[str]:
    """The metrics that the triggers name, before anything is checked."""
    names = set()
    for trigger in _triggers(document):
        metadata = _mapping(trigger.get("metadata"))
        profile = PROFILES.get(str(metadata.get("profile", "")).lower())
        name = metadata.get("metric") or (profile.keys.get("metric") if profile else None)
        if name:
            names.add(str(name))
    return names


def read_policy(document: Document, *, metrics: Mapping[str, Metric] = METRICS) -> Policy:
    """The policy of one ScaledObject; ``metrics`` is the table that its triggers choose from.

    Raises:
        ConfigurationError: with every fault of the manifest.
        UnsupportedError: it holds what the model cannot compute (a formula).
    """
    return _Reader(document, metrics).policy()


def changed(document: Document, key: str, text: str) -> Document:
    """The same ScaledObject with one setting changed, as a sweep does it.

    ``key`` is a key of a trigger (of all of them, or of one as ``NAME.key`` or ``INDEX.key``), a
    field of the spec such as ``cooldownPeriod``, or ``scaleDown.stabilizationWindowSeconds``.

    Raises:
        NotFoundError: there is no such setting.
    """
    result: dict[str, Any] = copy.deepcopy(dict(document))
    spec = result.setdefault("spec", {})
    if key in SPEC_KEYS:
        spec[key] = int(text) if re.fullmatch(r"[0-9]+", text) else text
        return result
    if key in BEHAVIOR_KEYS:
        direction, field = key.split(".")
        inner = spec
        for name in ("advanced", "horizontalPodAutoscalerConfig", "behavior", direction):
            inner = inner.setdefault(name, {})
        inner[field] = int(text) if re.fullmatch(r"[0-9]+", text) else text
        return result
    chosen, _, name = key.rpartition(".")
    if name not in KEYS:
        known = ", ".join((*KEYS, *SPEC_KEYS, *BEHAVIOR_KEYS))
        raise NotFoundError(f"no setting {key}; known are {known}")
    matches = [
        trigger
        for index, trigger in enumerate(_triggers(result))
        if _is_ours(trigger) and chosen in {"", str(index), str(trigger.get("name", ""))}
    ]
    if not matches:
        raise NotFoundError(f"no trigger of accelscale is named {chosen}")
    for trigger in matches:
        trigger["metadata"] = {**_mapping(trigger.get("metadata")), name: text}
    return result


class _Reader:
    """Reads one document and gathers every fault of it."""

    def __init__(self, document: Document, metrics: Mapping[str, Metric]) -> None:
        self._document = document
        self._metrics = metrics
        self._faults: list[Fault] = []
        metadata = _mapping(document.get("metadata"))
        self._name = str(metadata.get("name") or "unnamed")
        self._namespace = str(metadata.get("namespace") or "default")
        self._annotations = _mapping(metadata.get("annotations"))
        self._spec = _mapping(document.get("spec"))

    def policy(self) -> Policy:
        ours, left_out = [], []
        for index, trigger in enumerate(_triggers(self._document)):
            if _is_ours(trigger):
                ours.append((index, trigger))
            else:
                name = f" ({trigger['name']})" if trigger.get("name") else ""
                left_out.append(f"trigger {index}, {trigger.get('type') or 'without a type'}{name}")
        if not ours:
            problem = "none of them is of accelscale (type external with the key metric or profile)"
            self._faults.append(Fault("spec.triggers", None, problem))
        parsed = [self._trigger(index, trigger) for index, trigger in ours]
        behavior, fallback = self._behavior(), self._fallback()
        numbers = {
            "min_replicas": self._whole("minReplicaCount", 0),
            "max_replicas": self._whole("maxReplicaCount", 100),
            "idle_replicas": self._whole("idleReplicaCount", None),
            "polling_interval": self._whole("pollingInterval", 30),
            "cooldown_period": self._whole("cooldownPeriod", 300),
            "initial_cooldown_period": self._whole("initialCooldownPeriod", 0),
        }
        triggers = [trigger for trigger in parsed if trigger is not None]
        scaled_object = None
        if not self._faults:
            try:
                scaled_object = ScaledObject(
                    triggers=tuple(
                        _keda_trigger(trigger, raw)
                        for trigger, (_, raw) in zip(triggers, ours, strict=True)
                    ),
                    fallback=fallback,
                    behavior=behavior,
                    pause=Pause.from_annotations(_texts(self._annotations)),
                    force_activation=_forces_activation(self._annotations),
                    **numbers,  # type: ignore[arg-type]
                )
            except ConfigurationError as error:
                self._faults.extend(error.faults)
        if self._faults or scaled_object is None:
            raise ConfigurationError(self._faults, subject=f"ScaledObject {self._name}")
        if _mapping(_mapping(self._spec.get("advanced")).get("scalingModifiers")).get("formula"):
            raise UnsupportedError(
                f"ScaledObject {self._name}: the language of scalingModifiers.formula is not part"
                " of the model; replay each trigger without it"
            )
        return Policy(
            self._name,
            self._namespace,
            scaled_object,
            tuple(triggers),
            any(raw.get("type") == "external-push" for _, raw in ours),
            tuple(left_out),
        )

    def _trigger(self, index: int, raw: Document) -> Trigger | None:
        metadata = _mapping(raw.get("metadata"))
        for key, value in metadata.items():
            if not isinstance(value, str):
                at = f"spec.triggers[{index}].metadata.{key}"
                self._faults.append(Fault(at, str(value), "must be text: put it in quotes"))
        texts = _texts(metadata)
        if raw.get("metricType"):
            texts["metricType"] = str(raw["metricType"])
        try:
            return parse_trigger(texts, metrics=self._metrics)
        except ConfigurationError as error:
            self._faults.extend(
                Fault(f"spec.triggers[{index}].metadata.{f.key}", f.value, f.problem)
                for f in error.faults
            )
            return None

    def _fallback(self) -> Fallback | None:
        raw = _mapping(self._spec.get("fallback"))
        if not raw:
            return None
        behavior = self._choice(
            FallbackBehavior, raw.get("behavior"), "spec.fallback.behavior", FallbackBehavior.STATIC
        )
        threshold = self._number(raw.get("failureThreshold"), "spec.fallback.failureThreshold", 0)
        replicas = self._number(raw.get("replicas"), "spec.fallback.replicas", 0)
        return Fallback(threshold or 0, replicas or 0, behavior or FallbackBehavior.STATIC)

    def _behavior(self) -> Behavior | None:
        advanced = _mapping(self._spec.get("advanced"))
        raw = _mapping(advanced.get("horizontalPodAutoscalerConfig")).get("behavior")
        if raw is None:
            return None
        try:
            return Behavior(self._rules(raw, "scaleUp"), self._rules(raw, "scaleDown"))
        except ConfigurationError as error:
            self._faults.extend(error.faults)
            return None

    def _rules(self, behavior: Any, direction: str) -> ScalingRules:
        raw = _mapping(_mapping(behavior).get(direction))
        at = f"behavior.{direction}"
        policies = []
        for index, policy in enumerate(_sequence(raw.get("policies"))):
            here = f"{at}.policies[{index}]"
            one = _mapping(policy)
            kind = self._choice(PolicyType, one.get("type"), f"{here}.type", None)
            value = self._number(one.get("value"), f"{here}.value", None)
            period = self._number(one.get("periodSeconds"), f"{here}.periodSeconds", None)
            if kind is not None and value is not None and period is not None:
                policies.append(HpaPolicy(kind, value, period))
            elif None in {one.get("type"), one.get("value"), one.get("periodSeconds")}:
                self._faults.append(Fault(here, None, "needs type, value and periodSeconds"))
        window_at = f"{at}.stabilizationWindowSeconds"
        return ScalingRules(
            tuple(policies),
            self._choice(SelectPolicy, raw.get("selectPolicy"), f"{at}.selectPolicy", None),
            self._number(raw.get("stabilizationWindowSeconds"), window_at, None),
            self._tolerance(raw.get("tolerance"), f"{at}.tolerance"),
        )

    def _tolerance(self, raw: Any, at: str) -> float | None:
        if raw is None:
            return None
        try:
            return float(raw)
        except (TypeError, ValueError):
            self._faults.append(Fault(at, str(raw), "must be a fraction such as 0.05"))
            return None

    def _whole(self, key: str, default: int | None) -> int | None:
        return self._number(self._spec.get(key), f"spec.{key}", default)

    def _number(self, raw: Any, at: str, default: int | None) -> int | None:
        if raw is None:
            return default
        if isinstance(raw, int) and not isinstance(raw, bool):
            return raw
        self._faults.append(Fault(at, str(raw), "must be a whole number"))
        return default

    def _choice(
        self, kind: type[Choice], raw: Any, at: str, default: Choice | None
    ) -> Choice | None:
        if raw is None:
            return default
        try:
            return kind(str(raw))
        except ValueError:
            allowed = ", ".join(kind)
            self._faults.append(Fault(at, str(raw), f"must be one of {allowed}"))
            return default


def _keda_trigger(trigger: Trigger, raw: Document) -> KedaTrigger:
    return KedaTrigger(
        trigger.metric_name,
        trigger.threshold,
        MetricType(trigger.metric_type),
        raw.get("useCachedMetrics") is True,
        str(raw.get("name") or ""),
    )


def _is_ours(trigger: Document) -> bool:
    metadata = _mapping(trigger.get("metadata"))
    return trigger.get("type") in EXTERNAL_TYPES and bool({"metric", "profile"} & set(metadata))


def _forces_activation(annotations: Mapping[str, Any]) -> bool:
    return str(annotations.get("autoscaling.keda.sh/force-activation", "")).lower() == "true"


def _triggers(document: Document) -> list[dict[str, Any]]:
    found = _sequence(_mapping(document.get("spec")).get("triggers"))
    return [trigger for trigger in found if isinstance(trigger, dict)]


def _flat(documents: Sequence[Any]) -> Iterator[Document]:
    for document in documents:
        if isinstance(document, Mapping):
            if document.get("kind") == "List":
                yield from _flat(_sequence(document.get("items")))
            else:
                yield document


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in values.items()}
