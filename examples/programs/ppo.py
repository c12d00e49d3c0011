"""Proximal policy optimization on a cart with a pole; the simulation runs on tensors, many carts at a time."""

# test: --steps 6
# agree: spread

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical


class CartPole:
    """The classic equations of motion of a pole on a cart, stepped for many carts at once."""

    def __init__(self, count: int, device: str) -> None:
        self.count, self.device = count, device
        self.state = torch.zeros(count, 4, device=device)
        self.age = torch.zeros(count, dtype=torch.int64, device=device)
        self.reset(torch.ones(count, dtype=torch.bool, device=device))

    def reset(self, which: torch.Tensor) -> None:
        self.state[which] = torch.empty(int(which.sum()), 4, device=self.device).uniform_(-0.05, 0.05)
        self.age[which] = 0

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, x_dot, theta, theta_dot = self.state.unbind(dim=1)
        force = torch.where(action == 1, 10.0, -10.0)
        cos, sin = torch.cos(theta), torch.sin(theta)
        temp = (force + 0.05 * theta_dot**2 * sin) / 1.1
        theta_acc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos.pow(2) / 1.1))
        x_acc = temp - 0.05 * theta_acc * cos / 1.1
        self.state = torch.stack(
            (x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc), dim=1
        )
        self.age += 1
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 12 * math.pi / 180) | (self.age >= 200)
        if done.any():
            self.reset(done)
        return self.state, torch.ones(self.count, device=self.device), done


def layer_init(layer: nn.Linear, std: float = np.sqrt(2), bias_const: float = 0.0) -> nn.Linear:
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(4, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(4, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 32)),
            nn.Tanh(),
            layer_init(nn.Linear(32, 2), std=0.01),
        )

    def get_value(self, x: torch.Tensor) -> torch.Tensor:
        return self.critic(x)

    def get_action_and_value(self, x: torch.Tensor, action: torch.Tensor | None = None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30, help="updates, each after a rollout of all carts")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True
    device = torch.device(args.device)

    agent = Agent().to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    envs = CartPole(args.num_envs, args.device)
    obs = torch.zeros((args.num_steps, args.num_envs, 4)).to(device)
    actions = torch.zeros((args.num_steps, args.num_envs)).to(device)
    logprobs, rewards, dones, values = (torch.zeros((args.num_steps, args.num_envs)).to(device) for _ in range(4))
    next_obs, next_done = envs.state, torch.zeros(args.num_envs).to(device)
    batch_size = args.num_envs * args.num_steps
    for update in range(args.steps):
        optimizer.param_groups[0]["lr"] = (1.0 - update / args.steps) * 1e-3
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            next_obs, rewards[step], done = envs.step(action)
            next_done = done.float()

        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages, lastgaelam = torch.zeros_like(rewards).to(device), 0
            for t in reversed(range(args.num_steps)):
                last = t == args.num_steps - 1
                nextnonterminal = 1.0 - (next_done if last else dones[t + 1])
                nextvalues = next_value if last else values[t + 1]
                delta = rewards[t] + 0.99 * nextvalues * nextnonterminal - values[t]
                advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nextnonterminal * lastgaelam
            returns = advantages + values

        b_obs, b_logprobs, b_actions = obs.reshape(-1, 4), logprobs.reshape(-1), actions.reshape(-1)
        b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
        b_inds, clipfracs = np.arange(batch_size), []
        for _ in range(2):
            np.random.shuffle(b_inds)
            for start in range(0, batch_size, batch_size // 2):
                mb = b_inds[start : start + batch_size // 2]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], b_actions.long()[mb])
                logratio = newlogprob - b_logprobs[mb]
                ratio = logratio.exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipfracs += [((ratio - 1.0).abs() > 0.2).float().mean().item()]
                mb_adv = b_advantages[mb]
                mb_adv = (mb_adv - mb_adv.mean()) / (mb_adv.std() + 1e-8)
                pg_loss = torch.max(-mb_adv * ratio, -mb_adv * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
                newvalue = newvalue.view(-1)
                v_clipped = b_values[mb] + torch.clamp(newvalue - b_values[mb], -10.0, 10.0)
                v_loss = 0.5 * torch.max((newvalue - b_returns[mb]) ** 2, (v_clipped - b_returns[mb]) ** 2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        y_pred, y_true = b_values.cpu().numpy(), b_returns.cpu().numpy()
        explained = np.nan if np.var(y_true) == 0 else 1 - np.var(y_true - y_pred) / np.var(y_true)
        assert np.isfinite(explained) and approx_kl.item() < 1.0 and 0 <= np.mean(clipfracs) <= 1
        print(f"update {update} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
