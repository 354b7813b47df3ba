"""Kernels for a CPU, compiled once by the machine's own compiler: few passes over memory, one call from Python."""
