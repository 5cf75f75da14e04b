"""The ResourceSlices of the cluster, watched once a pod holds a device by a claim."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from accelscale.errors import AccelscaleError
from accelscale_server.api_server import ApiError, ApiServer
from accelscale_server.claims import (
    GROUP,
    VERSIONS,
    ClaimedDevice,
    PoolSlice,
    ResourceSliceWire,
    SliceStore,
    pool_slice_record,
    resource_slices,
)
from accelscale_server.watching import NOT_SERVED, Pace, Watch, need

if TYPE_CHECKING:
    from accelscale.model import Claim

logger = logging.getLogger("accelscale_server.cluster")


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]


class Slices:
    """Says what is published of claimed devices. For one event loop; nothing runs until asked."""

    def __init__(
        self, api: ApiServer, changed: Callable[[], None], *, limit: float, pace: Pace
    ) -> None:
        self._api = api
        self._changed = changed
        self._limit = limit
        self._pace = pace
        self._store = SliceStore()
        self._wanted = asyncio.Event()
        self._trouble = "ResourceSlices have not been read yet"
        self.watch: Watch[ResourceSliceWire, PoolSlice, SliceStore] | None = None

    def claimed(self, claim: Claim) -> ClaimedDevice | str:
        """What is published of the device of a claim, or why that is not known."""
        self._wanted.set()
        if self.watch is None:
            return self._trouble
        try:
            need(self.watch, self._limit)
        except AccelscaleError as error:
            return str(error)
        found = self._store.device(claim)
        return found or f"no ResourceSlice of pool {claim.pool} has it"

    async def run(self) -> None:
        """Watch the version of the API that is served, from the first question on."""
        await self._wanted.wait()
        while True:
            try:
                version = await self._version()
            except ApiError as error:
                refused = error.status == NOT_SERVED
                self._trouble = (
                    f"the API server has no {GROUP} that is understood" if refused else str(error)
                )
                await asyncio.sleep(
                    self._pace.refused_pause if refused else self._pace.longest_pause
                )
                continue
            self.watch = Watch(
                self._api,
                resource_slices(version),
                ResourceSliceWire,
                pool_slice_record,
                self._store,
                self._changed,
                self._pace,
            )
            await self.watch.run(while_served=True)

    async def _version(self) -> str:
        """The best of the versions that both sides know."""
        body = await self._api.get(f"apis/{GROUP}")
        try:
            served = {each.version for each in msgspec.json.decode(body, type=_Group).versions}
        except msgspec.DecodeError as error:
            raise ApiError(f"not understood: {error}") from error
        for version in VERSIONS:
            if version in served:
                return version
        raise ApiError(f"versions {', '.join(sorted(served))}", NOT_SERVED)
