# $ run
"""Runner: a flow starts another one, reads its results, resumes it, and sees it fail."""

import textwrap

from metaflow import FlowSpec, Runner, step

OTHER = """
from metaflow import FlowSpec, Parameter, current, step

class Other(FlowSpec):
    alpha = Parameter("alpha", default=1)

    @step
    def start(self):
        self.doubled = self.alpha * 2
        self.next(self.end)

    @step
    def end(self):
        if self.alpha > 5 and current.origin_run_id is None:
            raise ValueError("too large")
        print("doubled", self.doubled)

if __name__ == "__main__":
    Other()
"""


class F(FlowSpec):
    @step
    def start(self):
        with open("other.py", "w") as file:
            file.write(textwrap.dedent(OTHER))
        with Runner("other.py", show_output=False).run(alpha=3, tags=["a", "b"]) as running:
            run = running.run
            self.good = running.status, running.returncode, run.data.doubled, run.successful
            self.tags = {"a", "b"} <= run.user_tags
            self.said = "doubled 6" in running.stdout, running.stderr == ""
        self.next(self.fails)

    @step
    def fails(self):
        runner = Runner("other.py", show_output=False)
        failed = runner.run(alpha=7)
        self.failed = failed.status, failed.returncode != 0, failed.run.successful
        again = runner.resume(origin_run_id=failed.run.id)
        self.resumed = (
            again.status,
            again.run.data.doubled,
            again.run["start"].task.origin_pathspec is not None,
        )
        self.refused = []
        for words in (
            *({"beta": 1}, {"alpha": "text"}, {"max_workers": "many"}, {"max_workers": "3"}),
            *({"tags": "x"}, {"tags": [1]}, {"tags": 3}, {"tags": None}, {"tags": ["y"]}),
        ):
            try:
                self.refused.append(runner.run(**words).status)
            except Exception as bad:
                self.refused.append(type(bad).__name__)
        for words in ({"decospecs": "retry"}, {"quiet": "yes"}, {"quiet": True}):
            try:
                with Runner("other.py", show_output=False, **words).run() as running:
                    self.refused.append(running.status)
            except Exception as bad:
                self.refused.append(type(bad).__name__)
        try:
            Runner("nowhere.py")
        except Exception as bad:
            self.refused.append(type(bad).__name__)
        runner.cleanup()
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    F()
