"""OpenTelemetry metrics of streamplug, for Prometheus and others."""
