"""Helpers that the tests, the benchmarks and the scripts of the repository share."""
