"""Who gets how much of a worker's time, on a simulated clock: slices, tenants, and instructions that take long."""

from __future__ import annotations

import pytest

from server.worker.shares import LONG_SECONDS, SLICE_SECONDS, Share, grant, may_pass


class Client:
    """A session and its client, who sends instructions of ``work`` seconds and then thinks for ``thought`` seconds.

    Now and then the client stalls, for ``stall`` seconds.
    """

    def __init__(
        self, tenant: Share, work: float, thought: float = 0.0, device: float = 0.0, stall: float = 0.0
    ) -> None:
        self.share, self.tenant_share, self.is_granted = Share(), tenant, True
        self.work, self.thought, self.device, self.stall = work, thought, device, stall
        self.asked = self.used = 0.0
        self.answered: list[float] = []


class Worker:
    """The worker's loop, as far as it shares time."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients, self.now, self.used = clients, 0.0, 0.0

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            busy = [client for client in self.clients if client.asked <= self.now]
            quiet = [client for client in self.clients if client.asked > self.now]
            held = grant(busy, quiet, self.now, self.used) if busy else None
            asked = min([client.asked for client in quiet], default=end)
            if not busy or held:
                self.now = asked if not busy else min(asked, self.now + (held or 0.0))
                continue
            do_share = len({client.tenant_share for client in busy}) > 1
            looked = self.now
            for client in sorted(busy, key=lambda client: not client.share.is_light):
                if held is None or (client.is_granted and (not do_share or client.tenant_share.credit > 0)):
                    self._turn(client)
                if self.now - looked > SLICE_SECONDS:
                    looked = self.now
                    for other in quiet:
                        if other.asked <= self.now and may_pass(other, do_share):
                            self._turn(other)

    def _turn(self, client: Client) -> None:
        begin = self.now
        while True:  # one instruction at least, and no further one after a slice
            self.now += client.work
            client.answered.append(self.now - client.asked)
            client.asked = self.now + client.thought
            if len(client.answered) % 40 == 0:  # the client has no processor
                client.asked += client.stall
            if client.thought or self.now - begin >= SLICE_SECONDS:
                break
        taken = self.now - begin
        client.used += taken
        self.used += taken
        for share in (client.share, client.tenant_share):
            share.charge(taken, client.device, taken, self.now, not client.thought)
            if taken > LONG_SECONDS:
                share.hold(taken, self.now, self.used)


@pytest.mark.parametrize("long", [0.004, 0.016, 0.03, 0.2, 2.0])
@pytest.mark.parametrize("stall", [0.0, 0.015])
def test_round_trips_hardly_meet_long_instructions(long: float, stall: float) -> None:
    victim, attacker = Client(Share(), 50e-6, 250e-6, stall=stall), Client(Share(), long)
    worker = Worker([victim, attacker])
    worker.run(max(2.0, 20 * long))
    times = sorted(victim.answered)
    assert times[int(len(times) * 0.99)] <= 3 * 50e-6 + SLICE_SECONDS
    assert attacker.used > 0.05 * worker.now, "who has long instructions is never served"


@pytest.mark.parametrize("tenants", [1, 2])
def test_round_trips_pass_a_crowd_of_trainings(tenants: int) -> None:
    crowd = Share()
    many = [Client(crowd, 300e-6) for _ in range(64)]
    victim = Client(crowd if tenants == 1 else Share(), 50e-6, 250e-6)
    worker = Worker([*many, victim])
    worker.run(3.0)
    times = sorted(victim.answered)
    assert times[len(times) // 2] <= SLICE_SECONDS + 500e-6
    assert times[int(len(times) * 0.99)] <= 2 * SLICE_SECONDS + 3 * 50e-6
    assert max(client.used for client in many) < 1.5 * min(client.used for client in many)


def test_time_is_shared_by_tenant_and_then_by_session() -> None:
    crowd, single = Share(), Share()
    many = [Client(crowd, 100e-6) for _ in range(9)]
    one = Client(single, 300e-6)
    worker = Worker([*many, one])
    worker.run(3.0)
    assert one.used == pytest.approx(worker.now / 2, rel=0.1)
    for client in many:
        assert client.used == pytest.approx(worker.now / 18, rel=0.15)


@pytest.mark.parametrize("tenants", [1, 2])
def test_long_and_short_instructions_share_fairly_where_both_have_work(tenants: int) -> None:
    first = Share()
    long, short = Client(first, 0.02), Client(first if tenants == 1 else Share(), 100e-6)
    worker = Worker([short, long])
    worker.run(10.0)
    assert short.used == pytest.approx(long.used, rel=0.1)


def test_time_of_the_device_counts() -> None:
    """Both take the host equally long, but one of them has the device at work for much longer."""
    light, heavy = Client(Share(), 500e-6), Client(Share(), 500e-6, device=0.008)
    worker = Worker([light, heavy])
    worker.run(2.0)
    assert light.used == pytest.approx(5 * heavy.used, rel=0.2)


def test_who_is_alone_has_all() -> None:
    client, idle = Client(Share(), 0.02), Client(Share(), 50e-6, 0.5)
    worker = Worker([client, idle])
    worker.run(5.0)
    assert client.used > 0.95 * worker.now
