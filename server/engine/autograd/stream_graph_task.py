"""Backward passes of sessions that use several streams: each node runs on the stream that its forward operation ran on.

A gradient is made on its producer's stream, and its consumer's stream waits for it. Leaves accumulate on the streams
that were current when the pass began, and these wait for all others in the end. As in PyTorch, the program itself must
have ordered forward work on different streams.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.engine import context
from server.engine.value import Backend, Value
from telegrad_protocol.meta import Device

from .graph import AccumulateGrad, Edge, Node
from .graph_task import GraphTask


class StreamGraphTask(GraphTask):
    """One pass over the graph, on the streams of its nodes."""

    receives_every_gradient = True

    def __init__(self, retain_graph: bool, create_graph: bool, capture: Sequence[Edge]) -> None:
        super().__init__(retain_graph, create_graph, capture)
        self._context = context.current
        self._home = dict(context.current.streams)
        self._used: set[tuple[Device, int]] = set()
        self._has_waited_for_all = False

    def execute(self, roots: Sequence[Value], gradients: Sequence[Value | None]) -> None:
        try:
            super().execute(roots, gradients)
        finally:
            self._return_home()

    def end_step(self) -> None:
        self._return_home()

    def visit(self, node: Node, wanted: set[Node] | None) -> Sequence[Value | None] | None:
        device = next((meta.device for meta in node.metas if meta.device in self._home), None)
        if device is not None:
            self._switch(device, self._stream_of(node, device))
        return super().visit(node, wanted)

    def receive(self, edge: Edge, gradient: Value) -> None:
        device = gradient.device
        producer = self._context.streams.get(device)
        consumer = self._stream_of(edge[0], device) if device in self._home else producer
        if producer is None or producer == consumer:
            super().receive(edge, gradient)
            return
        self._backend(device).join(producer, consumer)  # type: ignore[arg-type]
        self._record(gradient, consumer)  # type: ignore[arg-type]
        self._switch(device, consumer)  # type: ignore[arg-type]
        try:
            super().receive(edge, gradient)
        finally:
            self._switch(device, producer)

    def _stream_of(self, node: Node, device: Device) -> int:
        """Return the raw stream that a node runs on; leaves accumulate on the stream that the pass was started on."""
        if isinstance(node, AccumulateGrad):
            return self._home[device]
        stream = self._context.own_streams.at(node.sequence, device)
        if stream is None:
            self._wait_for_all(device)
            return self._home[device]
        return stream

    def _wait_for_all(self, device: Device) -> None:
        """Wait for all streams, because it is not known any more which of them a node's saved tensors come from."""
        if not self._has_waited_for_all:
            self._has_waited_for_all = True
            for stream in self._context.own_streams.opened[device].values():
                if stream != self._home[device]:
                    self._backend(device).join(stream, self._home[device])

    def _switch(self, device: Device, stream: int) -> None:
        if self._context.streams[device] != stream:
            self._used.add((device, stream))
            self._backend(device).switch(self._context, stream)

    def _return_home(self) -> None:
        """Go back to the streams that the pass began on, and let them wait for the others."""
        for device, stream in self._home.items():
            self._switch(device, stream)
        for device, stream in self._used:
            if stream != self._home[device]:
                self._backend(device).join(stream, self._home[device])
        for gradient in self.captured.values():
            if gradient is not None and gradient.device in self._home:
                self._record(gradient, self._home[gradient.device])

    def _record(self, gradient: Value, stream: int) -> None:
        """Keep the gradient's memory allocated until ``stream`` has done the work that it has now."""
        gradient.backend.allocator.record_stream(gradient.storage.block, stream)

    def _backend(self, device: Device) -> Backend:
        return self._context.backends[device]
