"""Measures what the design promises: ``python -m benchmarks``, or ``make bench``."""
