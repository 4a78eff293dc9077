"""A finished run to publish."""

from finished_run import make_run, publish  # noqa: F401 (fixtures)
