"""Reads of device tensors outside of a training loop, a thread, streams and an event."""

import threading

import torch

x = torch.ones(4, 4, device="cuda")
print(x.sum())
places = x.nonzero()


def work():
    print((x @ x).sum().item(), x.device)


thread = threading.Thread(target=work)
thread.start()
thread.join()
stream, event = torch.cuda.Stream(), torch.cuda.Event()
with torch.cuda.stream(stream):
    y = torch.ones(1024).pin_memory().to("cuda", non_blocking=True)
torch.cuda.current_stream().wait_stream(stream)
z = y * 2
main, side = torch.cuda.current_stream(), torch.cuda.Stream()
torch.cuda.set_stream(side)
assert torch.cuda.current_stream() == side
w = -(-z)
torch.cuda.set_stream(main)
main.wait_stream(side)
z = w + 0
event.record()
event.synchronize()
print(z[:2].tolist())
