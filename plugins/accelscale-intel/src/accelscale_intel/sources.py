"""Which of the two ways a metric of a card is read, and what is said where neither gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field

from accelscale.model import Reason
from accelscale_intel.files import UnreadableError

Way = tuple[str, Callable[[], Callable[[], float] | None]]
"""The name of a way, and how to get its reader of the metric: None if it never has it."""

LEVEL_ZERO = "Level Zero"
KERNEL = "kernel"

_CANNOT = frozenset({Reason.NOT_SUPPORTED, Reason.PERMISSION})


@define
class Sources:
    """For each metric of each card, the way that first gave it, which it keeps while open.

    The two ways have counters of their own, and where one of them measures the card the other may
    measure a part of it: to change between them would look like a change of the card. A way that
    lacks the metric, or the right to read it, is passed over; any other failure is that of the
    metric.
    """

    _chosen: dict[tuple[str, str], str] = field(factory=dict)

    def forget(self, address: str | None = None) -> None:
        """Choose anew, for this card or for all."""
        self._chosen = {
            key: name for key, name in self._chosen.items() if address not in {None, key[0]}
        }

    def value(
        self,
        address: str,
        metric: str,
        ways: Sequence[Way],
    ) -> float:
        """The value by the first way that gives it.

        Raises:
            UnreadableError: none gives it; the detail has what each of them said.
        """
        chosen = self._chosen.get((address, metric))
        failures: list[tuple[str, UnreadableError]] = []
        for name, reader in ways:
            if chosen not in {None, name}:
                continue
            try:
                read = reader()
                if read is None:
                    continue
                value = read()
            except UnreadableError as error:
                failures.append((name, error))
                if error.reason not in _CANNOT:
                    break
            else:
                self._chosen[address, metric] = name
                return value
        raise _together(metric, failures)


def _together(metric: str, failures: Sequence[tuple[str, UnreadableError]]) -> UnreadableError:
    """One failure for all of them: what can be changed says more than what never was."""
    if not failures:
        text = f"neither Level Zero nor the kernel gives {metric}"
        return UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True)
    telling = failures[-1][1]
    if telling.reason is Reason.NOT_SUPPORTED:
        others = [error for _, error in failures if error.reason is not Reason.NOT_SUPPORTED]
        telling = others[0] if others else telling
    return UnreadableError(
        telling.reason,
        "; ".join(f"{name}: {error.detail}" for name, error in failures),
        code=telling.code,
        permanent=all(error.permanent for _, error in failures),
    )
