# $ run
from metaflow import (
    DataArtifact,
    FlowSpec,
    Run,
    Task,
    current,
    namespace,
    retry,
    step,
)


class F(FlowSpec):
    @step
    def start(self):
        self.base = 1
        self.gone = "still here"
        self.next(self.work)

    @retry(times=2, minutes_between_retries=0)
    @step
    def work(self):
        self.tries = current.retry_count
        self.large = list(range(2000 * (1 + current.retry_count)))
        if current.retry_count == 0:
            self.only_first = "zero"
            self.base = 10
        if current.retry_count < 2:
            raise ValueError(f"no {current.retry_count}")
        self.next(self.end)

    @step
    def end(self):
        namespace(None)
        task = Run(f"F/{current.run_id}")["work"].task
        self.attempts = []
        for number in (None, 0, 1, 2, 3):
            one = Task(task.pathspec, attempt=number)
            data = {name: one[name].data for name in ("base", "tries", "only_first") if name in one}
            failed = one.exception and one.exception.exception
            length = len(one.data.large) if "large" in one else None
            self.attempts.append(
                (number, sorted(a.id for a in one), data, length, one.finished, failed)
            )
        self.refused = []
        for make in (
            lambda: DataArtifact(f"{task.pathspec}/only_first", attempt=1),
            lambda: Run(f"F/{current.run_id}", attempt=0),
            lambda: Task(task.pathspec, attempt=-1),
        ):
            try:
                make()
            except Exception as bad:
                self.refused.append(type(bad).__name__)
        self.first = DataArtifact(f"{task.pathspec}/only_first", attempt=0).data
        self.shown = repr(Task(task.pathspec, attempt=1)).rpartition("/")[2]


if __name__ == "__main__":
    F()
