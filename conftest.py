"""Loads the plugin modules of `fixtures/`; everything else is there."""

pytest_plugins = [
    "pytester",
    "fixtures.options",
    "fixtures.markers",
    "fixtures.progress",
    "fixtures.verdict",
    "fixtures.serving",
    "fixtures.oracle",
    "fixtures.decode",
]
