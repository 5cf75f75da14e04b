"""Recordings made by others: logs of nvidia-smi, and series of the DCGM and AMD exporters."""
