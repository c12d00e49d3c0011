"""Deep Q-learning in a grid with a pit: replay buffer, target network, epsilon-greedy steps."""

# test: --steps 60
# agree: 5e-3

from __future__ import annotations

import argparse
import math
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]


class Grid:
    """A field of ``size`` squares a side: the goal in one corner, a pit in the middle."""

    def __init__(self, size: int) -> None:
        self.size, self.place = size, (0, 0)

    def reset(self) -> np.ndarray:
        self.place, self.moves = (0, 0), 0
        return self.observe()

    def observe(self) -> np.ndarray:
        board = np.zeros((2, self.size, self.size), dtype=np.float32)
        board[0][self.place] = 1
        board[1][-1, -1] = 1
        return board

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        self.place = tuple(min(max(p + m, 0), self.size - 1) for p, m in zip(self.place, MOVES[action]))
        self.moves += 1
        if self.place == (self.size - 1, self.size - 1):
            return self.observe(), 1.0, True
        if self.place == (self.size // 2, self.size // 2):
            return self.observe(), -1.0, True
        return self.observe(), -0.02, self.moves >= 30


class ReplayMemory:
    """The last ``capacity`` transitions."""

    def __init__(self, capacity: int, chance: random.Random) -> None:
        self.memory: deque[Transition] = deque(maxlen=capacity)
        self.chance = chance

    def push(self, *args: object) -> None:
        self.memory.append(Transition(*args))

    def sample(self, batch_size: int) -> list[Transition]:
        return self.chance.sample(self.memory, batch_size)

    def __len__(self) -> int:
        return len(self.memory)


class DuelingDQN(nn.Module):
    """The value of a state, and how much better each move is than the mean one."""

    def __init__(self, size: int, n_actions: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(2 * size * size, 64), nn.SiLU(), nn.LayerNorm(64))
        self.value = nn.Linear(64, 1)
        self.advantage = nn.Linear(64, n_actions)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.features(x)
        advantage = self.advantage(hidden)
        return self.value(hidden) + advantage - advantage.mean(dim=1, keepdim=True)


def optimize(policy: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, memory: ReplayMemory,
             batch_size: int, gamma: float, device: torch.device) -> float:  # fmt: skip
    batch = Transition(*zip(*memory.sample(batch_size)))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], device=device, dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch, action_batch, reward_batch = torch.cat(batch.state), torch.cat(batch.action), torch.cat(batch.reward)
    state_action_values = policy(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(batch_size, device=device)
    with torch.no_grad():
        best = policy(non_final_next_states).max(1).indices.unsqueeze(1)
        next_state_values[non_final_mask] = target(non_final_next_states).gather(1, best).squeeze(1)
    expected = (next_state_values * gamma) + reward_batch
    loss = F.smooth_l1_loss(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--tau", type=float, default=0.02)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    device, chance, draw = torch.device(args.device), random.Random(args.seed), np.random.default_rng(args.seed)
    env = Grid(5)
    policy, target = DuelingDQN(env.size, len(MOVES)).to(device), DuelingDQN(env.size, len(MOVES)).to(device)
    weights = {k: torch.from_numpy(draw.normal(0, 0.2, v.shape)).to(v) for k, v in policy.state_dict().items()}
    print(policy.load_state_dict(weights))
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
    memory, episodes, losses, total = ReplayMemory(1000, chance), 0, [], 0.0
    state = torch.from_numpy(env.reset()).unsqueeze(0).to(device)
    for step in range(args.steps):
        epsilon = 0.05 + 0.85 * math.exp(-step / 200)
        if chance.random() > epsilon:
            with torch.no_grad():
                action = policy(state).max(1)[1].view(1, 1)
        else:
            action = torch.tensor([[chance.randrange(len(MOVES))]], device=device, dtype=torch.long)
        observation, reward, done = env.step(action.item())
        total += reward
        following = None if done else torch.tensor(observation, dtype=torch.float32, device=device).unsqueeze(0)
        memory.push(state, action, following, torch.tensor([reward], device=device))
        state = following
        if len(memory) >= args.batch_size:
            losses.append(optimize(policy, target, optimizer, memory, args.batch_size, 0.95, device))
            for slow, fast in zip(target.parameters(), policy.parameters()):
                slow.data.mul_(1 - args.tau).add_(fast.data, alpha=args.tau)
        if done:
            episodes, state = episodes + 1, torch.from_numpy(env.reset()).unsqueeze(0).to(device)
        if (step + 1) % 15 == 0:
            loss = np.mean(losses) if losses else 0
            print(f"step {step + 1} episodes {episodes} reward {total:.2f} loss {loss:.5f}")
            losses = []


if __name__ == "__main__":
    main()
