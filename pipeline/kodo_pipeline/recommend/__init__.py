"""Recommendations: changes of the topology that the rollup supports, as a patch."""
