"""Every number that decides a verdict, with its unit and its reason. Floors in tok/s live in floors.toml instead."""

from __future__ import annotations

from typing import Final
