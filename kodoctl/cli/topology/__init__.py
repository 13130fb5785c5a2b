"""Commands on topology files that make no plan: lint, fmt, init, schema, expand, graph, import."""
