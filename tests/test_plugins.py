"""The plugin façade, against distributions laid out on the path as an installer would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from attrs import frozen

from accelscale.backend import Backend
from accelscale.errors import BackendError, NotFoundError
from accelscale.metrics import METRICS, Metric
from accelscale.plugins import PluginFailure, Registry, load_plugins
from accelscale.testing import FakeBackend

BACKEND = """
from accelscale.backend import Backend, Probe
from accelscale.hookspecs import hookimpl
from accelscale.metrics import Metric, Tier

class Good(Backend):
    name = "{name}"
    vendor = "example"
    metrics = {{"utilization_percent": Tier.FAST}}

    def probe(self): return Probe(True, "always there")
    def open(self): pass
    def devices(self): return ()
    def read(self, devices, metrics): return iter(())
    def close(self): pass
"""

REGISTERS_GOOD = """
@hookimpl
def accelscale_register_backends(register):
    register(Good)
"""


@frozen
class Site:
    """A folder on the path into which a test lays distributions."""

    folder: Path

    def module(self, name: str, source: str) -> None:
        (self.folder / f"{name}.py").write_text(textwrap.dedent(source))

    def distribution(
        self, name: str, entry_points: str, version: str | None = "1.2", metadata: str | None = None
    ) -> None:
        folder = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (folder / "METADATA").write_text(text if metadata is None else metadata)
        (folder / "entry_points.txt").write_text(entry_points)

    def plugin(self, backend: str, source: str, *, name: str | None = None) -> None:
        """One distribution ``accelscale-BACKEND`` with one module, entry point and source."""
        module = f"plugin_{(name or backend).replace('-', '_')}"
        self.module(module, BACKEND.format(name=backend) + textwrap.dedent(source))
        self.distribution(
            f"accelscale-{name or backend}", f"[accelscale]\n{name or backend} = {module}\n"
        )


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site of its own in front of the path; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("ACCELSCALE_DISABLE_PLUGINS", raising=False)
    for name in [name for name in sys.modules if name.startswith("plugin_")]:
        monkeypatch.delitem(sys.modules, name)
    return Site(tmp_path)


def failure(registry: Registry, plugin: str) -> PluginFailure:
    (found,) = [failure for failure in registry.failures if failure.plugin == plugin]
    return found


def test_good_plugin_is_registered_with_its_origin(site: Site) -> None:
    site.plugin("good", REGISTERS_GOOD)
    registered = load_plugins().backends["good"]
    assert registered.distribution == "accelscale-good"
    assert registered.version == "1.2"
    assert registered.plugin == "good"
    assert registered.backend.__module__ == "plugin_good"


def test_a_backend_is_created_by_name(site: Site) -> None:
    site.plugin("good", REGISTERS_GOOD)
    registry = load_plugins()
    first, second = registry.create("good"), registry.create("good")
    assert isinstance(first, Backend)
    assert first is not second


HOOK = """
@hookimpl
def accelscale_register_backends(register):
"""

HALF = """
class Half(Backend):
    name = "half"
    vendor = "example"
    metrics = Good.metrics
    def probe(self): ...
    def open(self): ...
    def close(self): ...
"""


def registers_good_after(change: str) -> str:
    return f"{change}\n{REGISTERS_GOOD}"


def hook(*statements: str) -> str:
    return HOOK + "".join(f"    {statement}\n" for statement in statements)


REFUSED = {
    "raises KeyError": ("raise KeyError('libamd_smi.so')", "KeyError: 'libamd_smi.so'"),
    "raises OSError": ("raise OSError('cannot open shared object')", "cannot open shared object"),
    "raises AttributeError": ("raise AttributeError('undefined symbol')", "undefined symbol"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "is interrupted": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "does not parse": ("def broken(:\n", "SyntaxError"),
    "needs a module": ("import nowhere_at_all", "needs the module 'nowhere_at_all'"),
    "has no hook": ("", "has no hook accelscale_register_backends"),
    "misspelt, marked": (
        REGISTERS_GOOD.replace("backends", "backend"),
        "did you mean 'accelscale_register_backends'",
    ),
    "misspelt beside a good one": (
        REGISTERS_GOOD + "def accelscale_register_backendz(register):\n    register(Good)",
        "no hook 'accelscale_register_backendz'",
    ),
    "marked, with a name of its own": (
        REGISTERS_GOOD + "@hookimpl\ndef register_backends(register):\n    register(Good)",
        "unknown hook 'register_backends'",
    ),
    "unmarked": (REGISTERS_GOOD.replace("@hookimpl", ""), "lacks the mark @hookimpl"),
    "wrong argument": (REGISTERS_GOOD.replace("(register)", "(registry)"), "does not fit"),
    "hook raises half-way": (
        hook("register(Good)", "raise RuntimeError('half-way')"),
        "its hook raised RuntimeError: half-way",
    ),
    "hook exits": (hook("raise SystemExit"), "its hook raised SystemExit"),
    "registers nothing": (hook("pass"), "registered no backend"),
    "an instance": (hook("register(Good())"), "an object of type Good is no class"),
    "no Backend": (hook("register(dict)"), "dict is not derived from accelscale.backend.Backend"),
    "abstract": (HALF + hook("register(Half)"), "Half does not define devices, read"),
    "good and bad together": (hook("register(Good)", "register(int)"), "int is not derived"),
    "no name": (registers_good_after("del Good.name"), "its name is None"),
    "upper-case name": (registers_good_after("Good.name = 'Bad'"), "its name is 'Bad'"),
    "name of two words": (registers_good_after("Good.name = 'my card'"), "its name is 'my card'"),
    "name with a line end": (registers_good_after("Good.name = 'bad\\n'"), "its name is"),
    "no vendor": (registers_good_after("del Good.vendor"), "its vendor is None"),
    "no metrics": (registers_good_after("Good.metrics = {}"), "metrics is {}"),
    "unknown metric": (
        registers_good_after("Good.metrics = {'utilisation': Tier.FAST}"),
        "lists the metric 'utilisation'",
    ),
    "derived metric": (
        registers_good_after("Good.metrics = {'memory_used_percent': Tier.FAST}"),
        "accelscale derives",
    ),
    "no tier": (registers_good_after("Good.metrics = {'power_watts': 1}"), "the tier of"),
    "metric without prefix": (
        registers_good_after("Good.extra_metrics = (Metric('fan_percent', 'percent', 'Fan.'),)"),
        "'fan_percent' must be lower case and start with 'bad_'",
    ),
    "metric of the table": (
        registers_good_after("Good.extra_metrics = (Metric('power_watts', 'watts', 'Power.'),)"),
        "'power_watts' is defined already",
    ),
    "same name twice in one plugin": (
        hook("register(Good)", "register(Good)"),
        "registered that name first",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_broken_plugin_is_refused_as_a_whole_and_the_rest_go_on(site: Site, case: str) -> None:
    source, reason = REFUSED[case]
    site.plugin("bad", source)
    site.plugin("good", REGISTERS_GOOD)
    registry = load_plugins()
    assert "good" in registry.backends
    assert "bad" not in registry.backends
    assert "half" not in registry.backends
    refused = failure(registry, "bad")
    assert (refused.distribution, refused.version) == ("accelscale-bad", "1.2")
    assert reason in refused.reason
    assert "\n" not in refused.reason


def test_missing_module_and_missing_attribute_are_told_apart(site: Site) -> None:
    site.module("plugin_empty", "")
    site.distribution(
        "accelscale-gone",
        "[accelscale]\ngone = plugin_gone.backend\nempty = plugin_empty:plugin\nodd = ???\n",
    )
    registry = load_plugins()
    assert "'plugin_gone.backend' does not exist" in failure(registry, "gone").reason
    assert "no attribute 'plugin'" in failure(registry, "empty").reason
    assert "importing" in failure(registry, "odd").reason


def test_a_plugin_may_be_an_object_of_its_module(site: Site) -> None:
    site.module(
        "plugin_object",
        BACKEND.format(name="object")
        + textwrap.dedent("""
            class Plugin:
                @hookimpl
                def accelscale_register_backends(self, register):
                    register(Good)

            plugin = Plugin()
            """),
    )
    site.distribution("accelscale-object", "[accelscale]\nobject = plugin_object:plugin\n")
    assert "object" in load_plugins().backends


@pytest.mark.parametrize("hangs", ["at import", "in the hook"])
def test_a_hanging_plugin_is_given_up(site: Site, hangs: str) -> None:
    wait = "__import__('threading').hang_of_a_test.wait()"
    source = registers_good_after(wait) if hangs == "at import" else hook(wait, "register(Good)")
    site.plugin("bad", source)
    site.plugin("good", REGISTERS_GOOD)
    gate = threading.Event()
    threading.hang_of_a_test = gate  # type: ignore[attr-defined]
    try:
        registry = load_plugins(limit_seconds=0.2)
    finally:
        gate.set()
        del threading.hang_of_a_test  # type: ignore[attr-defined]
    assert "longer than 0.2 s" in failure(registry, "bad").reason
    assert "good" in registry.backends
    for thread in threading.enumerate():
        if thread.name == "accelscale-plugin-bad":
            thread.join(10)
    assert "bad" not in registry.backends  # what it registers late is not taken


@pytest.mark.parametrize("entry_points", [("first", "last"), ("last", "first")])
def test_of_the_same_backend_from_two_distributions_the_first_by_name_wins(
    site: Site, entry_points: tuple[str, str]
) -> None:
    for distribution, entry_point in zip(("zulu", "alpha"), entry_points, strict=True):
        site.module(f"plugin_{distribution}", BACKEND.format(name="twin") + REGISTERS_GOOD)
        site.distribution(distribution, f"[accelscale]\n{entry_point} = plugin_{distribution}\n")
    registry = load_plugins()
    assert registry.backends["twin"].distribution == "alpha"
    (loser,) = [found for found in registry.failures if found.distribution == "zulu"]
    assert loser.plugin == entry_points[0]
    assert "of zulu" in loser.reason
    assert "alpha" in loser.reason


def test_a_built_in_backend_wins_over_one_that_sorts_first(site: Site) -> None:
    site.module("plugin_ours", BACKEND.format(name="nvidia") + REGISTERS_GOOD)
    site.module("plugin_theirs", BACKEND.format(name="nvidia") + REGISTERS_GOOD)
    site.distribution("aaa", "[accelscale]\nnvidia = plugin_theirs\n")
    site.distribution("accelscale", "[accelscale]\nnvidia = plugin_ours\n", version="9.9")
    registry = load_plugins()
    assert registry.backends["nvidia"].backend.__module__ == "plugin_ours"
    assert failure(registry, "nvidia").distribution == "aaa"
    assert load_plugins(disabled=["*"]).backends.keys() == {"nvidia"}
    assert "nvidia" not in load_plugins(disabled=["nvidia"]).backends


def test_two_plugins_that_define_the_same_metric(site: Site) -> None:
    row = "Good.extra_metrics = (Metric('a_b_fan_percent', 'percent', 'Fan.'),)\n"
    site.plugin("a", row + REGISTERS_GOOD)
    site.plugin("a-b", row + REGISTERS_GOOD)
    registry = load_plugins()
    assert "a" in registry.backends
    assert "accelscale-a " in failure(registry, "a-b").reason
    assert "accelscale-a-b " in failure(registry, "a-b").reason


def test_metrics_of_plugins_follow_the_common_table(site: Site) -> None:
    site.plugin(
        "good",
        "Good.extra_metrics = (Metric('good_fan_percent', 'percent', 'Fan.', 0, 100),)\n"
        "Good.metrics = {'good_fan_percent': Tier.SLOW}\n" + REGISTERS_GOOD,
    )
    rows = load_plugins().extra_metrics()
    assert list(rows)[: len(METRICS)] == list(METRICS)
    assert rows["good_fan_percent"] == Metric("good_fan_percent", "percent", "Fan.", 0, 100)


def test_disabled_plugins_are_not_imported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.plugin("one", REGISTERS_GOOD)
    site.plugin("two", REGISTERS_GOOD)
    site.plugin("three", REGISTERS_GOOD)
    monkeypatch.setenv("ACCELSCALE_DISABLE_PLUGINS", " one, Accelscale_Two,, ")
    registry = load_plugins()
    assert "three" in registry.backends
    assert {"one", "two"} <= set(registry.disabled)
    assert {"plugin_one", "plugin_two"}.isdisjoint(sys.modules)
    with pytest.raises(NotFoundError, match="'one' is disabled"):
        registry.create("one")
    assert {"one", "two"} <= load_plugins(disabled=()).backends.keys()


def test_strict_raises_and_names_every_refused_plugin(site: Site) -> None:
    site.plugin("bad", "raise OSError('no library')")
    site.plugin("worse", "")
    with pytest.raises(BackendError) as caught:
        load_plugins(strict=True)
    assert "accelscale-bad 1.2" in str(caught.value)
    assert "no library" in str(caught.value)
    assert "accelscale-worse 1.2" in str(caught.value)


def test_broken_metadata_hides_no_other_plugin(site: Site) -> None:
    for module in ("nameless", "bare"):
        site.module(f"plugin_{module}", BACKEND.format(name=module) + REGISTERS_GOOD)
    site.distribution("nameless", "[accelscale]\nnameless = plugin_nameless\n", metadata="\n")
    site.distribution("malformed", "[accelscale]\nno equals sign\n")
    site.distribution("foreign", "[console_scripts]\nno equals sign\n")
    site.distribution("bytes", "")
    (site.folder / "bytes-1.2.dist-info" / "entry_points.txt").write_bytes(b"[accelscale]\xff\xfe")
    bare = site.folder / "bare-1.dist-info"
    bare.mkdir()
    (bare / "entry_points.txt").write_text("[accelscale]\nbare = plugin_bare\n")
    site.plugin("good", REGISTERS_GOOD)
    registry = load_plugins()
    assert {"good", "nameless", "bare"} <= registry.backends.keys()
    named = registry.backends["nameless"]
    assert str(site.folder) in named.distribution
    assert named.version is None
    malformed = [found for found in registry.failures if found.distribution == "malformed"]
    assert "cannot be read" in malformed[0].reason
    assert all("foreign" not in found.distribution for found in registry.failures)


def test_the_copy_earlier_on_the_path_wins(site: Site, tmp_path: Path) -> None:
    site.plugin("good", REGISTERS_GOOD)
    behind = Site(tmp_path / "behind")
    behind.folder.mkdir()
    behind.distribution("Accelscale_Good", "[accelscale]\ngood = plugin_elsewhere\n", version="0.1")
    sys.path.insert(1, str(behind.folder))
    registry = load_plugins()
    assert registry.backends["good"].version == "1.2"
    assert not [found for found in registry.failures if found.plugin == "good"]


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_what_plugins_print_does_not_reach_standard_output(site: Site) -> None:
    site.plugin(
        "chatty",
        "print('at import')\n" + hook("print('in the hook')", "register(Good)"),
    )
    done = run_python(
        """
        import json
        from accelscale.plugins import load_plugins
        print(json.dumps(sorted(load_plugins().backends)))
        """,
        site.folder,
    )
    assert "chatty" in json.loads(done.stdout)
    assert "at import" in done.stderr
    assert "in the hook" in done.stderr


def test_loading_does_not_import_pkg_resources(site: Site) -> None:
    site.plugin("good", REGISTERS_GOOD)
    done = run_python(
        """
        import sys
        from accelscale.plugins import load_plugins
        assert "good" in load_plugins().backends
        print("pkg_resources" in sys.modules, "setuptools" in sys.modules)
        """,
        site.folder,
    )
    assert done.stdout.split() == ["False", "False"]


class Fussy(FakeBackend):
    """Cannot be created without an argument."""

    name = "fussy"

    def __init__(self, argument: str) -> None:
        super().__init__()


def test_classes_of_this_process_are_registered_beside_the_plugins() -> None:
    registry = load_plugins(extra=[FakeBackend, Fussy])
    assert registry.backends["fake"].distribution == "this process"
    assert isinstance(registry.create("fake"), FakeBackend)
    with pytest.raises(BackendError, match="argument"):
        registry.create("fussy")


def test_a_class_of_this_process_wins_over_a_plugin(site: Site) -> None:
    site.plugin("fake", REGISTERS_GOOD)
    registry = load_plugins(extra=[FakeBackend], disabled=["host"])
    assert registry.backends["fake"].backend is FakeBackend
    assert "this process" in failure(registry, "fake").reason


def test_an_unsound_class_of_this_process_is_listed() -> None:
    registry = load_plugins(extra=[Backend])  # type: ignore[type-abstract]
    assert "does not define" in failure(registry, "Backend").reason


def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(site: Site) -> None:
    site.plugin("amd", "raise KeyError('libamd_smi.so')")
    registry = load_plugins(extra=[FakeBackend])
    with pytest.raises(NotFoundError) as caught:
        registry.create("fkae")
    assert "did you mean 'fake'" in str(caught.value)
    with pytest.raises(NotFoundError) as caught:
        registry.create("amd")
    assert "fake" in str(caught.value)
    assert "libamd_smi.so" in str(caught.value)


def test_two_threads_that_load_leave_standard_output_as_it_was(site: Site) -> None:
    site.plugin("slow", "import time\ntime.sleep(0.05)\n" + REGISTERS_GOOD)
    before = sys.stdout
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append("slow" in load_plugins().backends))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [True] * 4
    assert sys.stdout is before
