"""A few training steps of a small network whose norms are saker.torch.RMSNorm, on the GPU if there is one.

SPDX-License-Identifier: Apache-2.0
"""

import torch
import saker.torch

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = saker.torch.RMSNorm(width)  # in place of torch.nn.RMSNorm
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


model = torch.nn.Sequential(Block(64), Block(64), saker.torch.RMSNorm(64), torch.nn.Linear(64, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
x = torch.randn(512, 64, device=device)
target = x[:, :1] * x[:, 1:2]

losses = []
for step in range(60):
    loss = torch.nn.functional.mse_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 0:
        print(f"step {step:3}: loss {losses[-1]:.4f}")
print(f"step {step:3}: loss {losses[-1]:.4f} on {device}, last norm by {saker.kernel(device)}")
assert losses[-1] < 0.5 * losses[0]
