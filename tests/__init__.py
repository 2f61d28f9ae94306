"""Dray's tests. A package only so that tests and benchmarks share `tests.services`."""
