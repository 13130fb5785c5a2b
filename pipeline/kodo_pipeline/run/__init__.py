"""One run of the whole pipeline: ingest, rollup, audit and report of a topology, in a session that may go on."""
