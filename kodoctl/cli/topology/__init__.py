"""Commands on topology files that make no plan: lint, fmt, init, schema, explain, expand, graph, docs, import."""
