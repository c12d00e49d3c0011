"""An actor-critic that learns to walk to the end of a corridor: Categorical, plain PyTorch."""

from __future__ import annotations

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

LENGTH = 8


class ActorCritic(nn.Module):
    """Log odds of the two steps, and the value of a place."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(LENGTH, 16)
        self.actor, self.critic = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, state: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Return what to do next, at random, and the value."""
        hidden = torch.tanh(self.body(state))
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = np.random.default_rng(options.seed)
    model = ActorCritic()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(draw.standard_normal(tuple(parameter.shape)).astype("float32")) / 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(options.episodes):
        place, log_probs, values, entropies, rewards = 0, [], [], [], []
        for _ in range(20):
            policy, value = model(F.one_hot(torch.tensor(place), LENGTH).float())
            # The action is drawn with NumPy, so that every library takes the same steps.
            action = int(draw.random() < policy.probs[1].item())
            log_probs.append(policy.log_prob(torch.tensor(action)))
            values.append(value)
            entropies.append(policy.entropy())
            place = min(max(place + 2 * action - 1, 0), LENGTH - 1)
            rewards.append(1.0 if place == LENGTH - 1 else -0.1)
            if place == LENGTH - 1:
                break
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.95 * total
            returns.insert(0, total)
        target, value = torch.tensor(returns), torch.stack(values)
        advantage = (target - value).detach()
        loss = -(torch.stack(log_probs) * advantage).mean() + F.smooth_l1_loss(value, target)
        loss = loss - 0.01 * torch.stack(entropies).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.6f}")


if __name__ == "__main__":
    main()
