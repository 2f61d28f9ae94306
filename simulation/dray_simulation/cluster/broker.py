"""A broker of a simulated cluster: the real `Node`, in a process that can be killed, stopped and held up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dray.broker.cluster import BrokerIdTaken
from dray.broker.groups.coordinator import GroupUnavailable
from dray.broker.topics import TopicError
from dray.daemons.assembly.process import MachineIdentity
from dray.daemons.broker.node import Node
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError
from dray.objects.memory import MemoryObjects
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.builds import OlderStore
from dray_simulation.kernel.faults import FaultyObjects, FaultyStore
from dray_simulation.kernel.runtime import SimulatedRuntime
from dray_simulation.kernel.weather import TASKS, check_alive, was_injected

if TYPE_CHECKING:
    from dray_simulation.cluster.world import ClusterWorld

# Errors that may end a task of a broker when a store fails under it: its caller has left, or tries again.
TROUBLE = (MetadataError, ObjectError, LogError, TopicError, GroupUnavailable)
_RESTART_SECONDS = 0.3


class ClusterBroker:
    """A place in the cluster. One process after the other runs there."""

    def __init__(self, world: ClusterWorld, place: int, host: str, port: int) -> None:
        self.place = place
        self.host = host
        self.port = port
        self.name = host
        self._world = world
        self.clock = world.conditions.clock(place)  # of its machine: processes come and go there
        self.runtime = SimulatedRuntime(0, self.clock)
        self.store: FaultyStore | None = None
        self.objects: FaultyObjects | None = None
        self.node: Node | None = None
        self._process = 0
        self.serving = False

    async def up(self) -> None:
        """Serving when this returns. A process that cannot start is started again, as a supervisor would."""
        while not self.serving:
            self.begin()
            assert self.node is not None
            starting = asyncio.get_running_loop().create_task(
                self.node.start(), name=f"start {self.name}", context=self.runtime.context()
            )
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                self.serving = True
                self._world.trace(self.name, "serves")
            else:
                error = None if starting.cancelled() else starting.exception()
                if error is not None and not (
                    isinstance(error, (*TROUBLE, BrokerIdTaken)) or was_injected(error)
                ):
                    raise error
                self._world.counts["failed starts"] += 1
                self.kill()
                await asyncio.sleep(_RESTART_SECONDS)

    def begin(self) -> None:
        """A new process, with a node that is not started yet."""
        world, conditions = self._world, self._world.conditions
        self._process = world.new_process()
        self.runtime = SimulatedRuntime(world.random.getrandbits(48), self.clock)
        self.store = world.store_client(self.runtime, older=self.place in conditions.older_brokers)
        if isinstance(self.store, OlderStore):
            self.store.beats = conditions.older_beats
        self.objects = FaultyObjects(
            MemoryObjects(self.runtime, world.bucket),
            world.store_object,
            world.delete_object,
            self.runtime,
            conditions.weather,
        )
        machine = (
            MachineIdentity("here", self._process, world.is_running)
            if conditions.known_machine
            else MachineIdentity()
        )
        self.node = self.runtime.context().run(
            Node,
            conditions.settings(self.place, self.host, self.port),
            self.runtime,
            self.store,
            self.objects,
            machine=machine,
            upstream=conditions.upstream(self.runtime),
        )
        # Metadata is never copied here: `tests/simulation/forks.py` does that.
        self.node.parts.keeps_tally = False
        self.node.parts.keeps_level = conditions.level_wait is not None
        self.node.parts.reads = world.builds.level_read(older=self.place in conditions.older_brokers)

    def kill(self) -> None:
        self.check()
        self.serving = False
        assert self.store is not None
        assert self.objects is not None
        self.store.cut()
        self.objects.cut()
        self.runtime.kill()
        self._world.process_ended(self._process)
        self._world.network.cut_process(self.runtime)

    async def stop(self) -> None:
        """As a deployment does it: a signal to end, a wait, and a kill if it takes too long."""
        self.serving = False
        assert self.node is not None
        stopping = asyncio.get_running_loop().create_task(
            self.node.stop(), name=f"stop {self.name}", context=self.runtime.context()
        )
        await asyncio.wait([stopping], timeout=5.0)
        if stopping.done() and not stopping.cancelled():
            stopping.exception()  # a store that fails now is no news
        self.kill()

    def check(self) -> None:
        """Raise errors that its tasks died of, and requests that ended in a mistake of ours."""
        for failure in self.runtime.failures:
            if not (isinstance(failure, TROUBLE) or was_injected(failure)):
                raise failure
        if self.serving:
            check_alive(self.name, self.runtime, TASKS)
        if self.node is not None and not self._world.conditions.unexpected_errors:
            failed = self.node.metrics.connections_closed.labels("request failed").value
            if failed:
                raise Violation(f"{self.name}: {failed:.0f} requests ended in an unexpected error")
