"""N no-op steps, for bench.py: `python_steps.py stoker|fork|zenml|metaflow N`. numpy is imported in every case.

Each way is its own documentation's first example with an empty body: a chain of steps that hand on an integer
(metaflow's are empty methods; it needs two steps at least, `start` and `end`).
"""

import os
import sys


def with_stoker(n: int) -> None:
    import numpy  # noqa: F401  (its pages are what a fork has to copy)

    from stoker import pipeline, step

    @step(enable_cache=False)
    def nothing(x: int) -> int:
        return x

    @pipeline(name="bench")
    def many() -> None:
        x = 1
        for _ in range(n):
            x = nothing(x)

    many()


def with_fork(n: int) -> None:
    import numpy  # noqa: F401

    for _ in range(n):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def with_zenml(n: int) -> None:
    import numpy  # noqa: F401
    from zenml import pipeline, step

    global nothing  # it is looked up by its name in this module

    @step(enable_cache=False)
    def nothing(x: int) -> int:
        return x

    @pipeline(enable_cache=False)
    def many() -> None:
        x = 1
        for _ in range(n):
            x = nothing(x)

    many()


def with_metaflow(n: int) -> None:
    body = ["from metaflow import FlowSpec, step", "import numpy", "class Many(FlowSpec):"]
    names = ["start", *[f"s{i}" for i in range(n - 2)], "end"]
    for name, following in zip(names, [*names[1:], None]):
        body += ["    @step", f"    def {name}(self):"]
        body += [f"        self.next(self.{following})" if following else "        pass"]
    body += ["if __name__ == '__main__':", "    Many()"]
    with open("many.py", "w", encoding="utf-8") as file:
        file.write("\n".join(body))
    os.execv(sys.executable, [sys.executable, "many.py", "--quiet", "run", "--max-workers", "2"])


if __name__ == "__main__":
    way = {"stoker": with_stoker, "fork": with_fork, "zenml": with_zenml, "metaflow": with_metaflow}
    way[sys.argv[1]](int(sys.argv[2]))
