"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl

_STORAGES = {
    "S3": ("s3", "s3a"),
    "GCS": ("gs", "gcs"),
    "Azure": ("az", "abfs", "abfss", "azure", "azure-dl"),
    "Http": ("https", "http"),
}


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the storages of this distribution."""
    return [
        Provider(
            "storage",
            f"obstore+{schemes[0]}",
            f"streamplug_obstore.clouds:Obstore{name}",
            aliases=tuple(f"obstore+{scheme}" for scheme in schemes[1:]),
        )
        for name, schemes in _STORAGES.items()
    ]
