"""The policy lab: record what the hardware did, and see what KEDA and the HPA would make of it.

Nothing here opens a network connection, and importing this package imports nothing heavy: each
module says what it needs. The extra ``lab`` of the distribution brings all of it.

* `accelscale.lab.recording`: a `Recording` in memory; `accelscale.lab.loading` reads one from a
  file, `accelscale.lab.recorder` writes one while the hardware works.
* `accelscale.lab.policy`: a ScaledObject as a manifest says it.
* `accelscale.lab.replay`: both together, through the real trigger parser, the real engine and the
  model in `accelscale.hpa`.
"""
