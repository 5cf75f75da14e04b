"""What this process may do, as far as it decides what drivers tell it."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from accelscale_intel.files import UnreadableError, text_of


@frozen
class Privileges:
    """What this process may do: whether it is root, and its capabilities as a bit mask."""

    is_root: bool
    capabilities: int

    PERFMON = 38
    SYS_ADMIN = 21
    DAC_READ_SEARCH = 2
    DAC_OVERRIDE = 1

    def has(self, *numbers: int) -> bool:
        """Whether it has one of these capabilities."""
        return any(self.capabilities >> number & 1 for number in numbers)


def privileges(root: Path) -> Privileges:
    """What the kernel says of this process; nothing where it says nothing."""
    try:
        lines = text_of(root / "proc/self/status").splitlines()
        fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
        effective_user, mask = fields["Uid"][1], fields["CapEff"][0]
        return Privileges(effective_user == "0", int(mask, 16))
    except (UnreadableError, LookupError, ValueError):
        return Privileges(is_root=False, capabilities=0)
