"""Loads the plugin modules of `fixtures/`; everything else is there."""

pytest_plugins = [
    "pytester",
    "fixtures.options",
    "fixtures.markers",
    "fixtures.progress",
    "fixtures.verdict",
    "fixtures.measure",
    "fixtures.report",
    "fixtures.known_failures",
    "fixtures.checkpoint",
    "fixtures.loaders",
    "fixtures.serving",
    "fixtures.fingerprint",
    "fixtures.floors",
    "fixtures.throughput",
    "fixtures.oracle",
    "fixtures.decode",
    "fixtures.whitebox",
    "fixtures.variants",
    "fixtures.context",
]
