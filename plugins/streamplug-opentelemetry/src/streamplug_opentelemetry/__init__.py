"""Metrics of streamplug through OpenTelemetry, for Prometheus and others."""
