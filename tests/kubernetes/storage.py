"""What a Kubernetes API server keeps: objects, a version that grows, and a log of changes."""

from __future__ import annotations

import base64
import copy
import json
import threading
from collections.abc import Iterator, Mapping

from kubernetes.semantics import (
    RESOURCES,
    Change,
    Key,
    Object,
    Reply,
    Resource,
    chosen_by,
    key_of,
)


class Storage:
    """Objects by resource. May be used from any thread."""

    def __init__(self) -> None:
        self.resources = {(r.group_version, r.plural): r for r in RESOURCES}
        self.version = 1000
        self.oldest = 1000  # a watch from before this version is too old
        self.page_size = 10_000
        self._lock = threading.RLock()
        self._objects: dict[Resource, dict[Key, Object]] = {}
        self._log: list[Change] = []
        self._pages: dict[tuple[int, str, str], list[Object]] = {}

    def resource(self, plural: str) -> Resource:
        """The resource of this name."""
        return next(r for r in self.resources.values() if r.plural == plural)

    def put(self, plural: str, value: Object) -> Object:
        """Create or replace an object; gives it as stored, with its resource version."""
        with self._lock:
            resource = self.resource(plural)
            stored = copy.deepcopy(value)
            stored.setdefault("apiVersion", resource.group_version)
            stored.setdefault("kind", resource.kind)
            before = self._of(resource).get(key_of(stored))
            self.version += 1
            metadata = stored["metadata"]
            metadata["resourceVersion"] = str(self.version)
            metadata.setdefault("uid", before["metadata"]["uid"] if before else f"u{self.version}")
            self._of(resource)[key_of(stored)] = stored
            self._log.append(Change(self.version, resource, before, stored))
            return copy.deepcopy(stored)

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object, at once."""
        with self._lock:
            resource = self.resource(plural)
            before = self._of(resource).pop((namespace, name))
            self.version += 1
            self._log.append(Change(self.version, resource, before, None))

    def objects(self, plural: str) -> dict[Key, Object]:
        """All objects of a resource, by namespace and name."""
        with self._lock:
            return copy.deepcopy(self._of(self.resource(plural)))

    def compact(self) -> None:
        """Forget what happened: a watch or a page from before now is too old."""
        self.restore(self.version)

    def restore(self, version: int) -> None:
        """Go back to an older version, as a restored backup does."""
        with self._lock:
            self.version = self.oldest = version
            self._log.clear()
            self._pages.clear()

    def find(self, resource: Resource, key: Key) -> Object | None:
        """One object, or None."""
        with self._lock:
            return self._of(resource).get(key)

    def changes_after(self, version: int) -> list[Change]:
        """What happened after a version, in order."""
        with self._lock:
            return [change for change in self._log if change.version > version]

    def page(self, resource: Resource, namespace: str, parameters: Mapping[str, str]) -> Object:
        """A page of a list, consistent with the pages before it.

        Raises:
            Reply: the version of those is too old.
        """
        with self._lock:
            version, start = self.version, 0
            if token := parameters.get("continue"):
                version, start = json.loads(base64.b64decode(token))
                pages = version, resource.plural, namespace
                if pages not in self._pages:
                    raise Reply(410, "The provided continue parameter is too old")
            else:
                chosen = chosen_by(namespace, parameters)
                everything = sorted(self._of(resource).items())
                pages = version, resource.plural, namespace
                self._pages[pages] = [value for _, value in everything if chosen(value)]
            items = self._pages[pages]
            size = min(int(parameters.get("limit") or len(items) or 1), self.page_size)
            metadata: Object = {"resourceVersion": str(version)}
            if (left := len(items) - start - size) > 0:
                token = base64.b64encode(json.dumps([version, start + size]).encode()).decode()
                metadata.update({"continue": token, "remainingItemCount": left})
            return {
                "kind": f"{resource.kind}List",
                "apiVersion": resource.group_version,
                "metadata": metadata,
                "items": [copy.deepcopy(dict(_bare(each))) for each in items[start : start + size]],
            }

    def _of(self, resource: Resource) -> dict[Key, Object]:
        return self._objects.setdefault(resource, {})


def _bare(value: Object) -> Iterator[tuple[str, object]]:
    """In lists the items carry neither kind nor version."""
    for name, part in value.items():
        if name not in ("kind", "apiVersion"):
            yield name, part
