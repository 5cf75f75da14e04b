"""Checks of ScaledObjects and ScaledJobs before they meet a cluster.

`check` takes `Source` records (`sources` reads them from files) and gives a `Report`. Nothing here
opens a network connection; PyYAML, of the extra ``lab``, is all that it needs.
"""

from accelscale.lab.check.checking import check
from accelscale.lab.check.findings import Finding, Report, Rule, Severity
from accelscale.lab.check.inputs import Source, sources
from accelscale.lab.check.subject import Conditions
from accelscale.lab.check.traps import RULES

__all__ = [
    "RULES",
    "Conditions",
    "Finding",
    "Report",
    "Rule",
    "Severity",
    "Source",
    "check",
    "sources",
]
