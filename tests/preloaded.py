"""What the processes of `tests.processes` start with: imports that take seconds, and nothing that starts a thread."""

import torch
import torch._dynamo
import torch.distributed.fsdp
import torch.nn.parallel

import vbdrop

torch.set_num_threads(1)
for name in vbdrop.__all__:
    getattr(vbdrop, name)
