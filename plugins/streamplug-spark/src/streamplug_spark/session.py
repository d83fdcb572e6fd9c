"""Access to the Spark session of this process."""

from __future__ import annotations

from typing import Any

from streamplug.errors import ConfigError


def spark_context(master: str | None) -> Any:
    """Return the Spark context of the active session, or of a new one that lives as long as the process.

    Args:
        master: Master URL, such as ``spark://10.0.0.1:7077``; None is the session of this process, or
            the one from Spark's configuration.

    Raises:
        ConfigError: If pyspark is missing, or the session belongs to another cluster or has no context.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            "the engine 'spark' needs pyspark, in the version that the cluster has: pip install pyspark"
        ) from error
    session = SparkSession.getActiveSession()
    if session is None:
        builder = SparkSession.builder.appName("streamplug")
        session = (builder if master is None else builder.master(master)).getOrCreate()
    try:
        context = session.sparkContext
    except Exception as error:  # the type depends on the version
        raise ConfigError(
            "the engine 'spark' does not work through Spark Connect, which has no jobs but queries: run it "
            "on the cluster, or use streamplug_spark.write_dataframe"
        ) from error
    if master is not None and context.master != master:
        raise ConfigError(
            f"engine spark:{master}: there is a session of {context.master} already; stop it, or write "
            "engine='spark' to use it"
        )
    return context
