"""The page in a real browser: it is drawn, follows light and dark, and fits a phone. Needs Chromium; CI has none."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from matplotlib import image

from glm5check.reports import html_report
from tests.selftest.reports.examples import every_kind_of_measurement, make_case, make_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NARROW = 500
"""Pixels. Headless Chromium makes no window narrower than that."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


@pytest.fixture
def shot(tmp_path):
    """A screenshot of a page with every picture, [height, width, RGBA] in 0..1."""
    page = tmp_path / "report.html"
    page.write_text(html_report.render(make_report(make_case(measurements=every_kind_of_measurement()))))

    def take(width: int, scheme: int):
        picture = tmp_path / "page.png"
        command = [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--blink-settings=preferredColorScheme={scheme}",
            f"--window-size={width},2000",
            f"--screenshot={picture}",
            page.as_uri(),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        return image.imread(picture)

    return take


def test_the_page_follows_light_and_dark(shot):
    dark, light = shot(1000, 0), shot(1000, 1)
    assert dark[-1, 0, :3].max() < 0.2
    assert light[-1, 0, :3].min() > 0.9
    for picture in (dark, light):
        assert picture[..., :3].std() > 0.05, "nothing was drawn"


def test_nothing_sticks_out_on_a_phone(shot):
    narrow = shot(NARROW, 1)
    margin = narrow[:, -6:, :3]
    assert margin.min() > 0.9, "something reaches the right edge"
