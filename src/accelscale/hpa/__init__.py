"""A faithful model of the Kubernetes HPA (autoscaling/v2, external metrics) and of KEDA's loop.

Pure: no input or output, no clock. Every function takes the time and the state it needs, and gives
the new state back.
"""

from accelscale.hpa.replicas import desired_replicas
from accelscale.hpa.tolerance import Tolerance, ToleranceForm

__all__ = ["Tolerance", "ToleranceForm", "desired_replicas"]
