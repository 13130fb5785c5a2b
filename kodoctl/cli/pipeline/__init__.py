"""Commands of the pipeline. Spark is imported when one of them runs, never before."""
