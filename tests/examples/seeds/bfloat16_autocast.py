# seeds: PyTorch Internals, 8.3
# agree: 2e-2
# warns: autocast
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
samples = torch.linspace(-2, 2, 64).reshape(16, 4).to(device)
loader = [(samples, samples.sum(1, keepdim=True).sin())] * 4
model = torch.nn.Linear(4, 1).to(device)
with torch.no_grad():
    model.weight.fill_(0.25)
    model.bias.zero_()
loss_fn = torch.nn.functional.mse_loss
opt = torch.optim.SGD(model.parameters(), lr=0.125)
# As printed:
for x, y in loader:
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(x)
        loss = loss_fn(out, y)
    loss.backward()
    opt.step()
# Shown:
print(out.dtype == (torch.bfloat16 if device == "cuda" else torch.float32), loss.dtype)
print(model.weight.tolist(), loss.item())
