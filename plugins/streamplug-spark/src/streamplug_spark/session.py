"""The session of Spark that this process has, or else a new one."""

from __future__ import annotations

from typing import Any

from streamplug.errors import ConfigError


def spark_context(master: str | None) -> Any:
    """Return a context of Spark; like any session, that of a new one stays until the process ends.

    Args:
        master: Of the cluster, such as ``spark://10.0.0.1:7077``; None for the session of this process, or
            what Spark is set up for.

    Raises:
        ConfigError: If there is no pyspark, or a session that is of another cluster or has no context.
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
    except Exception as error:  # which one depends on the version
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
