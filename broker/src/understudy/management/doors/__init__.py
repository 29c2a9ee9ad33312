"""Projections of the model of a node: HTTP, management over messages, metrics, OpenAPI, names of Artemis."""
