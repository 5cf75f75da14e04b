"""An inference fleet under a stream of requests, scaled by a policy: latency, hours and energy.

* `accelscale.lab.simulate.arrivals`, `synthetic`: which requests come, and when.
* `accelscale.lab.simulate.server_model`: how fast one server works and what it draws.
* `accelscale.lab.simulate.run`: the policy, the real engine and the model of KEDA and the HPA on
  such a fleet.
"""
