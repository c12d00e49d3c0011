# seeds: PyTorch Internals, 9.1
# runs: telegrad alone, since PyTorch's compiler needs a C++ compiler
# As printed:
import torch
@torch.compile
def f(x):
    y = x.sin()
    print("hi") # graph break
    return y.cos()
torch._dynamo.explain(f)(torch.randn(4))
# prints: number of graphs, number of breaks, reasons, locations
# Shown:
told = torch._dynamo.explain(f)(torch.zeros(4))
assert (told.graph_count, told.graph_break_count) == (2, 1)
assert told.break_reasons[0].user_stack[0].lineno == 8
print(told)
assert torch.equal(f(torch.zeros(4)), torch.ones(4))
