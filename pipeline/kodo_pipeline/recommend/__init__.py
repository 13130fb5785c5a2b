"""Recommendations: changes of the topology that the figures of rollup and audit records suggest, as a patch."""
