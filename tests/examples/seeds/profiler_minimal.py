# seeds: PyTorch Internals, 13.1
# runs: telegrad alone, whose figures are its own
# warns: the server has no GPU
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model, x, target = torch.nn.Linear(8, 8).to(device), torch.randn(4, 8).to(device), torch.zeros(4, 8).to(device)
import os
import tempfile
folder = os.getcwd()
os.chdir(tempfile.mkdtemp())
# As printed:
import torch
from torch.profiler import profile, record_function, ProfilerActivity
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    record_shapes=True,
    with_stack=False,
) as prof:
    with record_function("forward"):
        y = model(x)
    with record_function("loss"):
        loss = (y - target).pow(2).mean()
    with record_function("backward"):
        loss.backward()
print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=20))
prof.export_chrome_trace("trace.json") # open with chrome://tracing or perfetto
# Shown:
import json
with open("trace.json") as file:
    names = {event.get("name") for event in json.load(file)["traceEvents"]}
os.remove("trace.json")
os.rmdir(os.getcwd())
os.chdir(folder)
assert {"forward", "loss", "backward"} <= names, names
assert {"forward", "loss", "backward"} <= {event.key for event in prof.key_averages()}
