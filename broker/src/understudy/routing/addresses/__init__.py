"""The addresses of a node with their bindings, diverts and settings, and the directory that has them all."""
