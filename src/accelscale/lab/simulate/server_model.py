"""How fast one LLM server works and what it draws: a few figures, each of which can be set.

A server works in steps. In one step every running request gets its next token, and prompts that
wait are read, as many tokens as the budget of a step leaves. The step takes::

    step_seconds + step_seconds_per_request x running requests
                 + step_seconds_per_cached_token x tokens in the cache
                 + prompt tokens read / prefill_tokens_per_second

That is the shape of continuous batching with chunked prefill, as vLLM, SGLang and TensorRT-LLM do
it: the first term is the weights that every step reads, the third the cache that attention reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs
from attrs import frozen

from accelscale import values
from accelscale.errors import ConfigurationError, Fault, NotFoundError


def _figure(
    help: str,
    *,
    unit: str = "",
    read: Callable[[str], float] = values.decimal,
    least: float = 0.0,
    default: Any = attrs.NOTHING,
) -> Any:
    """A figure of the model that ``--set`` can change."""
    metadata = {"help": help, "unit": unit, "read": read, "least": least}
    return attrs.field(default=default, kw_only=True, metadata=metadata)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 13):
        raise ValueError("must be a whole number")
    return int(text)


def _yes_or_no(text: str) -> bool:
    if text.lower() not in {"yes", "no", "true", "false"}:
        raise ValueError("must be yes or no")
    return text.lower() in {"yes", "true"}


@frozen
class ServerModel:
    """One server of a model on its devices; watts and bytes are those of one device.

    Raises:
        ConfigurationError: figures that no server can have, all in one message.
    """

    name: str
    devices: int = _figure("Devices that one replica holds.", read=_whole, least=1)
    prefill_tokens_per_second: float = _figure(
        "How fast prompts are read once they fill the device.", unit="tokens/s", least=1e-9
    )
    step_seconds: float = _figure("A step that does nothing but read the weights.", unit="s")
    step_seconds_per_request: float = _figure(
        "What each running request adds to a step.", unit="s", default=0.0
    )
    step_seconds_per_cached_token: float = _figure(
        "What each token in the cache adds to a step.", unit="s", default=0.0
    )
    step_tokens: int = _figure(
        "The most tokens of one step: prompt tokens and one for each running request.",
        read=_whole,
        least=1,
        default=8192,
    )
    max_requests: int = _figure(
        "The most requests in work at once: the batch limit.", read=_whole, least=1, default=256
    )
    cache_tokens: int = _figure(
        "Tokens that fit into the key-value cache.", unit="tokens", read=_whole, least=2
    )
    load_seconds: float = _figure(
        "From the creation of the pod until it can work.", unit="s", read=values.duration
    )
    idle_watts: float = _figure("Drawn with the model loaded and no work.", unit="W")
    decode_watts: float = _figure("Drawn while one request gets its tokens.", unit="W")
    decode_watts_per_doubling: float = _figure(
        "Added with each doubling of the running requests, up to prefill_watts.",
        unit="W",
        default=0.0,
    )
    prefill_watts: float = _figure("Drawn while prompts are read.", unit="W")
    power_limit_watts: float = _figure("The power limit.", unit="W", least=1)
    memory_bytes: float = _figure("Memory.", unit="bytes", read=values.byte_quantity, least=1)
    weight_bytes: float = _figure(
        "What the weights and the engine take.", unit="bytes", read=values.byte_quantity
    )
    loaded_memory_percent: float = _figure(
        "Memory in use once loaded, the reserved cache included.", unit="%", default=90.0
    )
    reserves_cache: bool = _figure(
        "Whether the cache is reserved at start, so that memory in use never moves.",
        read=_yes_or_no,
        default=True,
    )
    full_utilization_percent: float = _figure(
        "What utilization_percent reads while the server works without a pause.",
        unit="%",
        default=100.0,
    )

    def __attrs_post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ConfigurationError(faults, subject=f"server model {self.name}")

    def _faults(self) -> Iterator[Fault]:
        for name, field in FIGURES.items():
            value, least = getattr(self, name), field.metadata["least"]
            if not least <= value < float("inf"):
                yield Fault(name, f"{value:g}", f"must be at least {least:g}")
        if self.step_tokens <= self.max_requests:
            problem = f"must be above max_requests ({self.max_requests}), or no prompt is ever read"
            yield Fault("step_tokens", str(self.step_tokens), problem)
        for name in ("loaded_memory_percent", "full_utilization_percent"):
            if getattr(self, name) > 100:
                yield Fault(name, f"{getattr(self, name):g}", "must be at most 100")
        if not self.step_seconds + self.step_seconds_per_request > 0:
            yield Fault("step_seconds", f"{self.step_seconds:g}", "must be above 0")
        for low, high in (
            ("idle_watts", "decode_watts"),
            ("decode_watts", "prefill_watts"),
            ("weight_bytes", "memory_bytes"),
        ):
            if getattr(self, high) < getattr(self, low):
                yield Fault(high, f"{getattr(self, high):g}", f"must be at least {low}")

    def decode_seconds(self, requests: int, cached: float) -> float:
        """A step for so many running requests with so many tokens in the cache, without prompts."""
        return (
            self.step_seconds
            + self.step_seconds_per_request * requests
            + self.step_seconds_per_cached_token * cached
        )

    def generating_watts(self, requests: int) -> float:
        """Of one device while so many requests, at least one, get their tokens."""
        watts = self.decode_watts + self.decode_watts_per_doubling * math.log2(requests)
        return min(watts, self.prefill_watts)

    def memory_used_bytes(self, cached: float) -> float:
        """Of a loaded device, with so many tokens in the cache."""
        loaded = self.memory_bytes * self.loaded_memory_percent / 100
        if self.reserves_cache or loaded <= self.weight_bytes:
            return loaded
        return self.weight_bytes + (loaded - self.weight_bytes) * cached / self.cache_tokens


FIGURES: Mapping[str, attrs.Attribute[Any]] = MappingProxyType(
    {field.name: field for field in attrs.fields(ServerModel) if "help" in field.metadata}
)
"""Every figure of the model by its name, with what it means."""

_H100: Mapping[str, Any] = {
    "idle_watts": 110.0,
    "decode_watts": 300.0,
    "decode_watts_per_doubling": 43.0,
    "prefill_watts": 650.0,
    "power_limit_watts": 700.0,
    "memory_bytes": 80 * 1024.0**3,
}

SETUPS: Mapping[str, ServerModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            ServerModel(
                "llama-70b",
                devices=2,
                prefill_tokens_per_second=12_800.0,
                step_seconds=0.0183,
                step_seconds_per_request=0.0,
                step_seconds_per_cached_token=15e-9,
                cache_tokens=450_000,
                load_seconds=180.0,
                weight_bytes=38e9,
                **_H100,
            ),
            ServerModel(
                "llama-8b",
                devices=1,
                prefill_tokens_per_second=40_000.0,
                step_seconds=0.0046,
                step_seconds_per_request=20e-6,
                step_seconds_per_cached_token=20e-9,
                cache_tokens=450_000,
                load_seconds=90.0,
                weight_bytes=11e9,
                **_H100,
            ),
        )
    }
)
"""Two well-known setups, both on NVIDIA H100 SXM 80 GB with weights in FP8; `docs/lab/simulate.md`
says where each figure is from and how far to trust it."""


def setup(name: str) -> ServerModel:
    """The setup of that name.

    Raises:
        NotFoundError: there is none.
    """
    found = SETUPS.get(name.lower())
    if found is None:
        raise NotFoundError(f"no setup {name}; known are {', '.join(SETUPS)}")
    return found


def with_figures(model: ServerModel, settings: Mapping[str, str]) -> ServerModel:
    """The model with some figures set, from texts as a user writes them.

    Raises:
        ConfigurationError: with every fault of them.
    """
    faults, found = [], {}
    for name, text in settings.items():
        if name not in FIGURES:
            hint = values.did_you_mean(name, FIGURES) or f"; known are {', '.join(FIGURES)}"
            faults.append(Fault(name, text, f"is no figure of a server{hint}"))
            continue
        try:
            found[name] = FIGURES[name].metadata["read"](text)
        except ValueError as error:
            faults.append(Fault(name, text, str(error)))
    if faults:
        raise ConfigurationError(faults, subject="server model")
    return attrs.evolve(model, **found)
