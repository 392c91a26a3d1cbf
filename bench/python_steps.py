"""N no-op steps, for bench.py: `python_steps.py stoker|fork|zenml|metaflow N`. numpy is imported in every case."""

import os
import sys

import numpy  # noqa: F401  (its pages are what a fork has to copy)


def with_stoker(n: int) -> None:
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
    for _ in range(n):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def with_zenml(n: int) -> None:
    from zenml import pipeline, step

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
    import subprocess

    body = ["from metaflow import FlowSpec, step", "import numpy", "class Many(FlowSpec):"]
    names = ["start", *[f"s{i}" for i in range(max(0, n - 2))], "end"]
    for i, name in enumerate(names):
        body += ["    @step", f"    def {name}(self):", f"        self.next(self.{names[i + 1]})" if name != "end" else "        pass"]
    body += ["if __name__ == '__main__':", "    Many()"]
    with open("many.py", "w", encoding="utf-8") as file:
        file.write("\n".join(body))
    subprocess.run([sys.executable, "many.py", "--quiet", "run"], check=True, env={**os.environ, "USERNAME": "bench"})


if __name__ == "__main__":
    {"stoker": with_stoker, "fork": with_fork, "zenml": with_zenml, "metaflow": with_metaflow}[sys.argv[1]](int(sys.argv[2]))
