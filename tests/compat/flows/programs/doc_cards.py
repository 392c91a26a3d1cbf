# $ run
"""Cards: of steps, of components, with ids, customised, updated, and found by the client."""

from metaflow import FlowSpec, Run, card, current, namespace, step
from metaflow.cards import (
    Artifact,
    Error,
    Image,
    Markdown,
    ProgressBar,
    PythonCode,
    Table,
    ValueBox,
    VegaChart,
    get_cards,
)


class F(FlowSpec):
    @card
    @step
    def start(self):
        current.card.append(Markdown("# Title"))
        current.card.append(
            Table([[1, Markdown("*two*")], [Artifact([3]), None]], headers=["a", "b"])
        )
        current.card.extend([Artifact({"k": 1}, name="named"), Image(b"GIF89a", label="not shown")])
        current.card.append(VegaChart({"mark": "bar", "data": {"values": [{"a": 1}]}}))
        self.next(self.two)

    @card(type="blank", id="first")
    @card(type="default", id="second", options={"only_repr": True})
    @card(type="blank", id="third", customize=True)
    @step
    def two(self):
        current.card["first"].append(Markdown("only in the first"))
        current.card["second"].append(Markdown("only in the second"))
        current.card.append(Markdown("in the customised one"))
        bar = ProgressBar(max=10, label="steps", unit="u")
        current.card["first"].append(bar, id="bar")
        for done in range(3):
            bar.update(done)
            current.card["first"].refresh()
        self.found = current.card["first"].components["bar"] is bar
        self.next(self.four)

    @card(type="blank", timeout=30)
    @step
    def four(self):
        current.card.clear()
        current.card.append(Markdown("a"))
        current.card.append(PythonCode(code_string="x = 1"))
        current.card.append(ValueBox("title", 3))
        current.card.append(Error(ValueError("bad"), "with a title"))
        self.next(self.end)

    @step
    def end(self):
        namespace(None)
        run = Run(f"F/{current.run_id}")
        self.counts = [len(get_cards(run[name].task)) for name in ("start", "two", "four")]
        self.by_id = [
            len(get_cards(run["two"].task, id=name)) for name in ("first", "second", "no")
        ]
        self.by_type = [len(get_cards(run["two"].task, type=name)) for name in ("blank", "default")]
        one = get_cards(run["two"].task, id="first")[0]
        self.one = one.type, one.id, one.hash != "", "<html" in one.get().lower()


if __name__ == "__main__":
    F()
