"""Accelerator metrics for autoscaling: read them, and decide on them.

The public names of the library are gathered here; see the library guide in ``docs``.
"""

__version__ = "0.1.0"
