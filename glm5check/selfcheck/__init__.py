"""Tests the tester: seeds every known kind of fault and sees whether the test that is named for it fails.

`registry` lists the faults, one module a place that they are seeded in; `cells` runs one of them, `healthy` a server
without a fault; `campaign` runs them all and keeps what is done; `score` sums it up for README.
"""
