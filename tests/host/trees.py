"""A tree of ``/etc``, ``/proc`` and ``/sys`` as a kernel would show it, for the host backend."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen


@frozen
class Tree:
    """A root folder whose files a test writes."""

    root: Path

    def write(self, path: str, text: object) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")
        return target

    def package(self, number: int, microjoules: int, span: int = 262_143_328_850) -> None:
        """A RAPL package with its core sub-domain, as Linux lays them out."""
        folder = f"sys/class/powercap/intel-rapl:{number}"
        self.write(f"{folder}/name", f"package-{number}")
        self.write(f"{folder}/energy_uj", microjoules)
        self.write(f"{folder}/max_energy_range_uj", span)
        self.write(f"{folder}:0/name", "core")
        self.write(f"{folder}:0/energy_uj", 999_000_000)

    def energy(self, number: int, microjoules: int) -> None:
        self.write(f"sys/class/powercap/intel-rapl:{number}/energy_uj", microjoules)

    def sensor(self, chip: int, driver: str, number: int, **values: object) -> None:
        """One ``tempN`` of a hardware monitor: its label, input, crit and so on."""
        folder = f"sys/class/hwmon/hwmon{chip}"
        self.write(f"{folder}/name", driver)
        for key, value in values.items():
            self.write(f"{folder}/temp{number}_{key}", value)
