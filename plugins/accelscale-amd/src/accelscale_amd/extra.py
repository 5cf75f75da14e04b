"""The metric that the common table lacks."""

from __future__ import annotations

from accelscale.metrics import Metric

VIDEO = Metric(
    "amd_video_utilization_percent",
    "percent",
    "Share of time that the video engines (VCN) worked, decoding or encoding: the mean over those"
    " that the card has.",
    0.0,
    100.0,
)
