"""Arithmetic model of a run: nodes, their network and cache, workers and training steps."""
