"""Finds the installed plugins and takes the backends that they register.

A plugin is an entry point of the group ``accelscale``, whose module carries the hook of
`accelscale.hookspecs`. Each one is imported and called by itself, so that a broken one is listed
with its reason while the others go on. This is the only user of pluggy, whose relay is untyped.
"""

from __future__ import annotations

import importlib
import inspect
import operator
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import redirect_stdout
from functools import partial
from importlib import metadata
from types import MappingProxyType
from typing import cast

import pluggy
from attrs import field, frozen

from accelscale import hookspecs
from accelscale.backend import Backend
from accelscale.backend_rules import class_faults
from accelscale.errors import BackendError, NotFoundError
from accelscale.metrics import METRICS, Metric

GROUP = "accelscale"
HOOK = "accelscale_register_backends"
DISABLE_VARIABLE = "ACCELSCALE_DISABLE_PLUGINS"
LIMIT_SECONDS = 5.0
"""How long the import and the hook of one third-party plugin may take together."""

_OURS = "accelscale"  # the distribution whose backends are built in
_loading = threading.Lock()  # standard output is redirected meanwhile, for the whole process


@frozen
class RegisteredBackend:
    """A backend class, and who brought it: distribution, its version, entry-point name."""

    name: str
    backend: type[Backend]
    distribution: str
    version: str | None
    plugin: str


@frozen
class PluginFailure:
    """A plugin that was refused as a whole; ``reason`` says in a sentence why."""

    plugin: str
    distribution: str
    version: str | None
    reason: str

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}" if self.version else self.distribution
        return f"plugin {self.plugin!r} of {origin}: {self.reason}"


@frozen
class Registry:
    """What the plugins brought: the backends by name, the refused and the disabled plugins."""

    backends: Mapping[str, RegisteredBackend] = field(hash=False)
    failures: tuple[PluginFailure, ...] = ()
    disabled: tuple[str, ...] = ()

    def create(self, name: str) -> Backend:
        """A new instance of the backend of that name; nothing is opened yet.

        Raises:
            NotFoundError: no such backend; the message says what became of a plugin of that name.
            BackendError: its constructor failed.
        """
        registered = self.backends.get(name)
        if registered is None:
            raise NotFoundError(self._not_found(name))
        try:
            return registered.backend()
        except Exception as error:
            raise BackendError(
                f"backend {name!r} of {registered.distribution} cannot be created:"
                f" {_in_words(error)}"
            ) from error

    def extra_metrics(self) -> Mapping[str, Metric]:
        """Every metric there is: the common table, then the rows of the plugins."""
        rows = dict(METRICS)
        for registered in self.backends.values():
            rows.update((row.name, row) for row in registered.backend.extra_metrics)
        return MappingProxyType(rows)

    def _not_found(self, name: str) -> str:
        names = ", ".join(self.backends) or "none"
        hint = _nearest(name, self.backends)
        parts = [f"no backend {name!r}{hint}; there are: {names}"]
        parts += [str(failure) for failure in self.failures if failure.plugin == name]
        if name in self.disabled:
            parts.append(f"plugin {name!r} is disabled ({DISABLE_VARIABLE})")
        return "; ".join(parts)


def load_plugins(
    *,
    disabled: Collection[str] | None = None,
    strict: bool = False,
    extra: Iterable[type[Backend]] = (),
    limit_seconds: float = LIMIT_SECONDS,
) -> Registry:
    """Load every plugin that is installed, and register the classes in ``extra`` beside them.

    ``disabled`` holds entry-point or distribution names; ``*`` stands for all but the built-in
    backends. By default it is the comma-separated list in ``ACCELSCALE_DISABLE_PLUGINS``.

    A plugin is taken or refused as a whole. Where two bring the same backend or metric, the
    built-in one wins, then ``extra``, then the distribution whose name sorts first. Third-party
    plugins are imported on a thread of their own, which is given up after ``limit_seconds``; what
    they print through ``sys.stdout`` goes to standard error.

    Raises:
        BackendError: a plugin was refused and ``strict`` is true; the message lists all of them.
    """
    names = _from_environment() if disabled is None else disabled
    switched_off = frozenset(_normal(name) for name in names)
    found, failures = _found_plugins()
    plugins = [*found, *(_Plugin.in_process(backend) for backend in extra)]
    taken: dict[str, RegisteredBackend] = {}
    skipped: list[str] = []
    with _loading, redirect_stdout(sys.stderr):
        for plugin in sorted(plugins, key=operator.attrgetter("order")):
            if plugin.is_disabled(switched_off):
                skipped.append(plugin.name)
                continue
            try:
                taken.update(_accepted(plugin, plugin.candidates(limit_seconds), taken))
            except _RefusedError as refused:
                failures.append(plugin.failure(str(refused)))
    if strict and failures:
        raise BackendError("; ".join(str(failure) for failure in failures))
    return Registry(
        backends=MappingProxyType(dict(sorted(taken.items()))),
        failures=tuple(failures),
        disabled=tuple(skipped),
    )


class _RefusedError(Exception):
    """Why a plugin is not taken, as a sentence for users."""


@frozen
class _Plugin:
    name: str
    distribution: str
    version: str | None
    registered: Callable[[], list[object]]
    installed: bool = True

    @classmethod
    def in_process(cls, backend: object) -> _Plugin:
        name = getattr(backend, "__qualname__", type(backend).__qualname__)
        return cls(name, "this process", None, lambda: [backend], installed=False)

    @property
    def built_in(self) -> bool:
        return self.installed and _normal(self.distribution) == _OURS

    @property
    def order(self) -> tuple[bool, bool, str, str]:
        return not self.built_in, self.installed, _normal(self.distribution), self.name

    def is_disabled(self, switched_off: Collection[str]) -> bool:
        if not self.installed:
            return False
        if "*" in switched_off and not self.built_in:
            return True
        return _normal(self.name) in switched_off or _normal(self.distribution) in switched_off

    def candidates(self, limit_seconds: float) -> list[object]:
        """What this plugin registers, unchecked. Third parties get a thread and a limit."""
        if self.built_in or not self.installed:
            return self.registered()
        return _within(limit_seconds, self.registered, self.name)

    def failure(self, reason: str) -> PluginFailure:
        return PluginFailure(self.name, self.distribution, self.version, reason)


def _from_environment() -> list[str]:
    return [name for name in os.environ.get(DISABLE_VARIABLE, "").split(",") if name.strip()]


def _found_plugins() -> tuple[list[_Plugin], list[PluginFailure]]:
    """The entry points of our group, one distribution at a time.

    `importlib.metadata.entry_points` would let the broken metadata of one distribution, ours or
    not, hide all the others.
    """
    plugins: list[_Plugin] = []
    failures: list[PluginFailure] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            text = distribution.read_text("entry_points.txt") or ""
        except (OSError, UnicodeError):
            continue  # unreadable: whose plugin it may be cannot be told
        if f"[{GROUP}]" not in text:
            continue
        known_as, version = _identity(distribution)
        if known_as and _normal(known_as) in seen:
            continue  # shadowed by one that stands earlier on the path
        seen.add(_normal(known_as))
        name = known_as or f"(unnamed, in {distribution.locate_file('')})"
        try:
            entry_points = distribution.entry_points.select(group=GROUP)
        except Exception as error:  # noqa: BLE001 - the parser of the standard library trips over malformed lines in several ways
            reason = f"its entry_points.txt cannot be read: {_in_words(error)}"
            failures.append(PluginFailure("entry_points.txt", name, version, reason))
            continue
        plugins += [
            _Plugin(entry_point.name, name, version, partial(_registered_by, entry_point))
            for entry_point in entry_points
        ]
    return plugins, failures


def _identity(distribution: metadata.Distribution) -> tuple[str, str | None]:
    """Name and version; the name is empty where the metadata lack it."""
    try:
        fields = distribution.metadata.json
    except Exception:  # noqa: BLE001 - what absent or garbled metadata raises differs by version of Python
        fields = {}
    version = fields.get("version")
    return str(fields.get("name") or ""), str(version) if version else None


def _registered_by(entry_point: metadata.EntryPoint) -> list[object]:
    """Import one plugin and call its hook, alone with a relay of its own."""
    plugin = _imported(entry_point)
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    _refuse_misspelt_hooks(plugin, manager)
    try:
        manager.register(plugin, entry_point.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _RefusedError(f"its hook does not fit: {_in_words(error)}") from error
    relay: pluggy.HookCaller = getattr(manager.hook, HOOK)
    if not relay.get_hookimpls():
        raise _RefusedError(f"{entry_point.value!r} has no hook {HOOK} marked with @hookimpl")
    registered: list[object] = []
    try:
        relay(register=registered.append)
    except (Exception, SystemExit) as error:
        raise _RefusedError(f"its hook raised {_in_words(error)}") from error
    if not registered:
        raise _RefusedError("its hook registered no backend")
    return registered


def _imported(entry_point: metadata.EntryPoint) -> object:
    try:
        module = importlib.import_module(entry_point.module)
    except ModuleNotFoundError as error:
        if error.name and f"{entry_point.module}.".startswith(f"{error.name}."):
            raise _RefusedError(
                f"its module {entry_point.module!r} does not exist: reinstall or uninstall it"
            ) from error
        raise _RefusedError(
            f"importing {entry_point.module!r} needs the module {error.name!r}, which is not"
            " installed"
        ) from error
    except (Exception, SystemExit) as error:  # vendor bindings raise KeyError, OSError, anything
        raise _RefusedError(f"importing {entry_point.value!r} raised {_in_words(error)}") from error
    try:
        return operator.attrgetter(entry_point.attr)(module) if entry_point.attr else module
    except AttributeError as error:
        raise _RefusedError(f"{entry_point.value!r}: {_in_words(error)}") from error


def _refuse_misspelt_hooks(plugin: object, manager: pluggy.PluginManager) -> None:
    """Refuse a function that was meant as a hook: pluggy ignores one without the mark."""
    for name in dir(plugin):
        if not name.startswith(f"{GROUP}_"):
            continue
        if not inspect.isroutine(inspect.getattr_static(plugin, name, None)):
            continue
        if not hasattr(hookspecs, name):
            raise _RefusedError(f"there is no hook {name!r}{_nearest(name, [HOOK])}")
        if manager.parse_hookimpl_opts(plugin, name) is None:
            raise _RefusedError(f"its function {name} lacks the mark @hookimpl")


def _within(seconds: float, function: Callable[[], list[object]], name: str) -> list[object]:
    """The result of the function, or a refusal if it takes longer; its thread is then abandoned."""
    results: list[list[object]] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            errors.append(error)

    thread = threading.Thread(target=run, name=f"accelscale-plugin-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        error = errors[0]
        if isinstance(error, _RefusedError):
            raise error
        raise _RefusedError(f"loading it raised {_in_words(error)}") from error
    if not results:
        raise _RefusedError(f"loading it took longer than {seconds:g} s and was given up")
    return results[0]


def _accepted(
    plugin: _Plugin, candidates: list[object], taken: Mapping[str, RegisteredBackend]
) -> dict[str, RegisteredBackend]:
    """The plugin's backends, all of them sound and none of them taken already."""
    accepted: dict[str, RegisteredBackend] = {}
    for candidate in candidates:
        backend = _sound(candidate)
        rival = accepted.get(backend.name) or taken.get(backend.name)
        if rival is not None:
            raise _RefusedError(
                f"backend {backend.name!r} of {plugin.distribution} is not used, because"
                f" {_origin(rival)} registered that name first: uninstall one of them, or name it"
                f" in {DISABLE_VARIABLE}"
            )
        rows = {row.name for row in backend.extra_metrics}
        for other in (*taken.values(), *accepted.values()):
            clash = sorted(rows & {row.name for row in other.backend.extra_metrics})
            if clash:
                raise _RefusedError(
                    f"metric {clash[0]!r} of {plugin.distribution} is already defined by"
                    f" {_origin(other)}"
                )
        accepted[backend.name] = RegisteredBackend(
            backend.name, backend, plugin.distribution, plugin.version, plugin.name
        )
    return accepted


def _origin(registered: RegisteredBackend) -> str:
    return f"{registered.distribution} (plugin {registered.plugin!r})"


def _sound(candidate: object) -> type[Backend]:
    """The candidate, known to be a backend class whose data keeps the rules."""
    try:
        fault = next(class_faults(candidate), None)
    except Exception as error:
        raise _RefusedError(f"what it registered cannot be examined: {_in_words(error)}") from error
    if fault is not None:
        raise _RefusedError(f"what it registered is no sound backend: {fault}")
    return cast("type[Backend]", candidate)


def _nearest(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(name, list(names), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _normal(name: str) -> str:
    """One spelling of a distribution's name, as package indexes compare them."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _in_words(error: BaseException) -> str:
    """The error on one line; `traceback` copes with a ``__str__`` that itself raises."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    return text if len(text) <= 300 else text[:297] + "..."
