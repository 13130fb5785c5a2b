"""Commands on topology files, without a plan: lint, fmt, init, schema, expand, graph, import."""
