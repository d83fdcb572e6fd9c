"""Tensors of any dtype (tensor) for streamplug, without pickle."""
