"""Benchmarks: programs that print figures, never tests that pass or fail on a clock."""
