"""Kernels: one integer source, thin loops per target."""
