"""The documentation site: Sphinx warns of nothing, every link leads somewhere, and no page asks for anything elsewhere."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
pytestmark = pytest.mark.slow
LOADS = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src"}


class Page(HTMLParser):
    """What a page links to, loads, and offers as anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADS and LOADS[tag] in given:
            self.loads.append(given[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.version_info < (3, 11):
        pytest.skip("Sphinx 9 needs Python 3.11")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "tools/make_site.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_links(site: Path, pages: dict[Path, Page]) -> None:
    n = 0
    for path, page in pages.items():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file() and site in target.parents, f"{path.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: {link}"
                n += 1
    assert n > 1000


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert not [one for one in page.loads if re.match(r"\w+:|//", one)], path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", path.read_text()), path


def test_in_a_browser(site: Path) -> None:
    """Chromium on files: pages ask for nothing but files, and the search finds a word."""
    playwright = pytest.importorskip("playwright.sync_api")
    asked: list[str] = []
    with (
        playwright.sync_playwright() as p,
        p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for name in ("index", "tutorial", "reference/stoker", "reference/commands"):
            page.goto(f"{site.as_uri()}/{name}.html")
            assert page.locator("h1").count() == 1
        page.goto(f"{site.as_uri()}/search.html?q=checkpoint")
        page.locator("#search-results li a").first.wait_for()
        assert "heckpoint" in page.locator("#search-results").inner_text()
    assert asked and all(url.startswith("file:") for url in asked), asked


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


def test_every_command_and_name(site: Path) -> None:
    told = subprocess.run([find_binary(), "help", "--json"], capture_output=True, check=True)
    page = (site / "reference/commands.html").read_text()
    for one in json.loads(told.stdout)["commands"]:
        assert f'id="stoker-{one["command"]}"' in page
    import stoker

    page = (site / "reference/stoker.html").read_text()
    for name in set(stoker.__all__) - {"callbacks", "checkpoint", "__version__"}:
        assert f'id="stoker.{name}"' in page, name


def test_every_key(site: Path) -> None:
    for name in ("pipeline", "stack"):
        schema = json.loads((ROOT / f"schema/{name}.schema.json").read_text())
        page = text_of(site / f"reference/{name}.html")
        keys = [
            key for one in (schema, *schema["$defs"].values()) for key in one.get("properties", {})
        ]
        assert len(keys) >= 20
        for key in keys:
            assert re.search(rf"^{key}$", page, re.M), f"{name}: {key}"


def test_every_symptom(site: Path) -> None:
    page = text_of(site / "troubleshooting.html")
    listed = (ROOT / "src/tbl/symptoms.def").read_text(encoding="utf-8")
    phrases = re.findall(r'^X\(\w+, "(.*)"\)$', listed, re.M)
    assert len(phrases) > 20
    for phrase in phrases:
        assert phrase in page, phrase


@pytest.mark.parametrize("mark", ["figures Nobody", "symptoms nothing"])
def test_a_mark_that_finds_nothing(mark: str) -> None:
    import make_site

    with pytest.raises(SystemExit, match="make_site: "):
        make_site.MARK.sub(make_site.filled, f"<!-- site: {mark} -->")


def test_links_are_turned() -> None:
    import make_site

    text = "[a](../gpus.md#x) [b](../../SECURITY.md) [c](../../src/tbl/x.def) ![d](img/x.png)\n```\n[e](f.md)\n```\n"
    turned = "[a](../gpus.md#x) [b](../SECURITY.md) c ![d](img/x.png)\n```\n[e](f.md)\n```\n"
    assert make_site.relink("docs/formats/spec.md", text) == turned
