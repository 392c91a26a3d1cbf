"""Pages of HTML that steps wrote as values and visualizations: shown with their styles in frames that
run nothing, on cards and in `stoker ui`."""

from __future__ import annotations

import json
import socket
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cli_tools import PYTHON, Cli
from pages import Browser, browser
from ui_server import Ui

PROGRAM = """
    import os
    from stoker import pipeline, step
    from stoker.materializers import BaseMaterializer, HTMLString

    HOSTILE = '''EVERYTHING_EVIL'''

    class Thing:
        pass

    class Things(BaseMaterializer):
        ASSOCIATED_TYPES = (Thing,)

        def save(self, value):
            with open(os.path.join(self.uri, "thing"), "w") as file:
                file.write("thing")

        def load(self, kind):
            return Thing()

        def save_visualizations(self, value):
            path = os.path.join(self.uri, "shown.html")
            with open(path, "w") as file:
                file.write(HOSTILE.replace("WHAT", "visualization"))
            return {path: "html"}

    @step(output_materializers=Things)
    def thing() -> Thing:
        return Thing()

    @step
    def value() -> HTMLString:
        return HTMLString(HOSTILE.replace("WHAT", "value"))

    @pipeline
    def p():
        thing()
        value()

    if __name__ == "__main__":
        p()
"""
HOSTILE = (
    "<style>@import url(EVIL/a.css); #shown { color: rgb(1, 2, 3); background: url(EVIL/b.png) }</style>"
    "<p id=shown>the WHAT</p><script>top.document.title = parent.document.title = \"owned\";"
    "fetch(\"EVIL/c\")</script><img src=EVIL/d.png onerror=\"top.document.title=1\">"
    "<iframe src=EVIL/e></iframe><meta http-equiv=refresh content=\"0;url=EVIL/f\">"
    "<a id=out target=_top href=EVIL/g>out</a><form action=EVIL/h target=_top><button id=go>go</button></form>"
    "</textarea></iframe>\"><b id=broken>"
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


def shown(page: Any) -> dict[str, str]:
    """What each frame shows, and the colour of it as it was drawn."""
    found = {}
    for frame in page.frames[1:]:
        text = frame.locator("#shown")
        if frame.parent_frame is page.main_frame and text.count():
            found[text.inner_text()] = text.evaluate("e => getComputedStyle(e).color")
    return found


def test_styled_and_still(cli: Cli, ui: Callable[..., Ui], chromium: Browser) -> None:
    elsewhere = socket.create_server(("127.0.0.1", 0))
    elsewhere.setblocking(False)
    evil = f"http://127.0.0.1:{elsewhere.getsockname()[1]}"
    hostile = HOSTILE.replace("EVIL", evil)
    cli.write("prog.py", textwrap.dedent(PROGRAM).replace("EVERYTHING_EVIL", hostile))
    done = cli("run", "-q", "--python", PYTHON, "prog.py")
    assert done.code == 0, done.err
    outputs = json.loads(cli("show", "--json").out)["steps"]["value"]["outputs"]
    server = ui()
    page = chromium._chromium.new_page()
    page.goto(server.url)
    base = f"http://127.0.0.1:{server.port}"
    styled = "rgb(1, 2, 3)"
    both = {"the visualization": styled, "the value": styled}
    value = {"the value": styled}
    places = {
        f"{base}/run?run=latest": both,
        f"{base}/task?run=latest&task=thing": {"the visualization": styled},
        f"{base}/task?run=latest&task=value": value,
        f"{base}/artifact?digest={outputs['output']['digest']}": value,
        f"file://{cli('card').out.strip()}": both,
        f"file://{cli('card', 'latest/value').out.strip()}": value,
    }
    for address, wanted in places.items():
        page.goto(address)
        title = page.title()
        for frame in page.locator("iframe").all():
            frame.scroll_into_view_if_needed()
            assert frame.get_attribute("sandbox") == ""
        assert shown(page) == wanted, address
        assert page.locator("main #broken").count() == 0
        for one in page.frames[1:]:
            if one.parent_frame is page.main_frame and one.locator("#out").count():
                one.locator("#out").click()
                one.locator("#go").click()
        page.wait_for_timeout(300)  # sleeps: a request that must not come has no event
        assert page.url == address and page.title() == title
    page.close()
    with elsewhere:
        try:
            heard = elsewhere.accept()[0].recv(1)
        except BlockingIOError:
            heard = b""
    assert heard == b""
