"""The pages in a real browser: drawn, following light and dark, fit for a phone. Needs Chromium; CI has none."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from matplotlib import image

from glm5check.reports import html_report, matrix_report
from tests.selftest.reports.examples import every_kind_of_detection, every_kind_of_measurement, make_case, make_report
from tests.selftest.reports.test_html import Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NARROW = 500
"""Pixels. Headless Chromium makes no window narrower than that."""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")]


OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
PAGES = {
    "report": lambda: html_report.render(make_report(make_case(measurements=every_kind_of_measurement()))),
    "matrix": lambda: matrix_report.render(every_kind_of_detection()),
}


@pytest.fixture(params=PAGES)
def page(request, tmp_path):
    """A page with everything that it can have."""
    path = tmp_path / "page.html"
    path.write_text(PAGES[request.param]())
    return path


@pytest.fixture
def shot(page, tmp_path):
    """A screenshot, [height, width, RGBA] in 0..1."""

    def take(width: int, scheme: int):
        picture = tmp_path / "page.png"
        command = [
            CHROMIUM,
            *OPTIONS,
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


@pytest.mark.parametrize("page", ["matrix"], indirect=True)
def test_the_matrix_can_be_read(page):
    """Every fault, test and kind of result is text in what the browser made of the page."""
    command = [CHROMIUM, *OPTIONS, "--dump-dom", page.as_uri()]
    dom = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    picture = Page(dom[dom.index("<figure") : dom.index("</figure>") + len("</figure>")]).texts["detection"]
    for word in ("caught another way", "missed", "left for a GPU", "not run", "false alarm", "failed as well"):
        assert word in picture
    for word in ("other_words", "decode: mean_kl", "decode: answers", "config", "1 healthy runs"):
        assert word in picture
