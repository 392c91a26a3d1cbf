"""Looks at pages in a real Chromium: what sticks out, is cut off, or asks for something."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from front_tools import cannot

WIDTHS = (390, 768, 1600)

# What is wrong on the page at its present width. An element inside one that scrolls may be wider.
_FAULTS = r"""(printed) => {
  const wrong = [], name = e => `${e.tagName}.${e.getAttribute('class') || ''} ${e.textContent.slice(0, 40)}`;
  const scrolls = e => {
    for (let p = e.parentElement; p; p = p.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(p).overflowX)) return true;
    return false;
  };
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page scrolls sideways');
  for (const e of document.body.querySelectorAll('*')) {
    const r = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (r.width > 0 && r.right > innerWidth + 1 && !scrolls(e)) wrong.push('sticks out: ' + name(e));
    if (style.overflowX === 'hidden' && e.scrollWidth > e.clientWidth + 1) wrong.push('cut off: ' + name(e));
    if (printed && e.scrollWidth > e.clientWidth + 1 && style.overflowX !== 'visible' && e.clientWidth > 0)
      wrong.push('cut off on paper: ' + name(e));
  }
  for (const svg of document.querySelectorAll('svg')) {
    const box = svg.getBoundingClientRect();
    for (const t of svg.querySelectorAll('text, rect, path')) {
      const r = t.getBoundingClientRect();
      if (r.width > 0 && (r.left < box.left - 2 || r.right > box.right + 2 || r.bottom > box.bottom + 2))
        wrong.push('outside its picture: ' + name(t));
    }
  }
  for (const e of document.querySelectorAll('td b, h1, .tile b')) {
    const lines = e.getClientRects().length, letters = e.textContent.length;
    if (lines > 1 && letters / lines < 12) wrong.push('broken into letters: ' + name(e));
  }
  for (const img of document.images) if (!img.naturalWidth) wrong.push('no picture: ' + name(img));
  return [...new Set(wrong)].slice(0, 20);
}"""


class Browser:
    """Pages of files; collects every request to anything else."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self.asked: list[str] = []

    def open(self, path: Path, width: int = 1000, scheme: str = "light") -> Any:
        page = self._chromium.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        page.on("request", lambda request: self._note(request.url, path))
        page.goto(f"file://{path}")
        return page

    def _note(self, url: str, path: Path) -> None:
        if not url.startswith("data:") and url != f"file://{path}":
            self.asked.append(url)

    def faults(self, path: Path) -> dict[str, list[str]]:
        """By width, colours and medium: what is wrong; only what is wrong at all."""
        found = {}
        for scheme in ("light", "dark"):
            page = self.open(path, scheme=scheme)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                found[f"{width} {scheme}"] = page.evaluate(_FAULTS, False)
            page.close()
        page = self.open(path)
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 794, "height": 1123})  # A4 at 96 dots an inch
        found["print"] = page.evaluate(_FAULTS, True)
        page.close()
        return {where: wrong for where, wrong in found.items() if wrong}


@contextmanager
def browser() -> Iterator[Browser]:
    """A Chromium without a screen."""
    program = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        cannot("playwright isn't installed (make deps-test)")
    if program is None:
        cannot("Debian's chromium isn't installed (make deps-test-all)")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield Browser(chromium)
        chromium.close()
