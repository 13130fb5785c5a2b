"""Draws docs/images/: screenshots of pages, from made-up facts, by the system's Chromium.

usage: python -m docs.pictures
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from kodo_pipeline.report.report_charts import for_chat
from kodo_pipeline.report.report_html import report_html
from kodo_pipeline.simulate import simulation_charts
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from kodoctl.ui import application
from kodoctl.ui.application import console
from kodoctl.ui.web_server import ConsoleServer
from tests.samples.catalogues import DEPOT, ROOT
from tests.samples.consoles import data_of, rates_of_night
from tests.samples.reports import made, tried

HERE = Path(__file__).parent / "images"
CONSOLE_PAGES = {
    "lane": "lane?topology=trade&topic=orders-billing-DLQ&subscription=billing",
    "plans": "plans?drift=read",
}
SHOTS = (("light", 1000, 1330), ("dark", 1000, 1330), ("phone", 390, 1100))


def main() -> None:
    """All of them."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        sys.exit("no Chromium on PATH: `make programs` installs one on Debian")
    HERE.mkdir(exist_ok=True)
    document = made()
    (HERE / "report-chat.png").write_bytes(dict(for_chat(document))["verdict.png"])
    for name, data in simulation_charts.for_chat(tried()):
        (HERE / name).write_bytes(data)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        file = Path(scratch) / "report.html"
        file.write_text(report_html(document), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for title, shown in (("report", file), ("catalogue", _catalogue(Path(scratch)))):
            for name, width, height in SHOTS:
                scheme = "dark" if name == "dark" else "light"
                page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
                page.goto(shown.as_uri())
                page.wait_for_function("[...document.images].every((one) => one.complete)")
                page.screenshot(path=str(HERE / f"{title}-{name}.png"))
                page.close()
        _draw_console(browser)
        browser.close()
    for picture in HERE.glob("*-*.png"):
        Image.open(picture).convert("RGB").quantize(96).save(picture, optimize=True)


def _draw_console(browser: Browser) -> None:
    """Draws the first screen of `kodoctl ui`: in light and in dark colours, and on a phone; then other pages of it."""
    application.FRESH_S = 0.0  # each load is a reading: rates need several
    with closing(ConsoleServer(console(data_of(read_status=rates_of_night())))) as server:
        for name, width in (("light", 1300), ("dark", 1300), ("phone", 390)):
            scheme = "dark" if name == "dark" else "light"
            page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(server.address)
            page.wait_for_selector("#live")
            for _ in range(20):
                page.reload()
            page.screenshot(path=str(HERE / f"console-{name}.png"))
            page.close()
        page = browser.new_page(viewport={"width": 1300, "height": 760})
        page.goto(server.address)
        page.wait_for_selector("#live")
        for name, path in CONSOLE_PAGES.items():
            page.goto(server.address.partition("?")[0] + path)
            page.evaluate("document.querySelectorAll('.apply').forEach((one) => { one.open = true; })")
            page.screenshot(path=str(HERE / f"console-{name}.png"), full_page=name == "plans")
        page.close()


def _catalogue(folder: Path) -> Path:
    """The page of a topology, in a catalogue of files as a user has them."""
    shutil.copytree(ROOT / "topologies", folder / "topologies")
    shutil.copytree(ROOT / "schemas", folder / "schemas")
    (folder / "topologies/depot.yaml").write_text(DEPOT, encoding="utf-8")
    files = ["topologies/trade.yaml", "topologies/depot.yaml"]
    command = [sys.executable, "-m", "kodoctl", "docs", *files, "--env", "base"]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603  # files of this repository
    return folder / "catalogue/topologies/trade.html"


if __name__ == "__main__":
    main()
