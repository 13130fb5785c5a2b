"""Settings of a Spark session, without Spark."""

from __future__ import annotations

from kodo_pipeline.spark.spark_session import SparkSettings


def test_a_master_among_the_settings_is_the_master() -> None:
    """Its driver listened at 127.0.0.1, so no executor of that cluster could register, and Spark waited for ever."""
    found = SparkSettings(master="local[2]", extra={"spark.master": "spark://there:7077"}, light=True)
    assert (found.at, found.is_local) == ("spark://there:7077", False)
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & found.configuration.keys()
    assert SparkSettings(extra={"spark.master": "local[1]"}).is_local
