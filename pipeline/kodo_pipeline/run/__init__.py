"""Run of the whole pipeline: ingest, rollup, audit and report of a topology in one Spark session, once or repeatedly."""
