"""collect: attach to a framework's training run and fill a Trace with its tensors.

    torch.watch     any PyTorch model, hooked on the steps that are recorded and on no other
"""
