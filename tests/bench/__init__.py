"""Measurements, run by `make bench`: each figure beside its peer in the same run."""
