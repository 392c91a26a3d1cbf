"""Fifty Python steps with side effects, for crash.py: each appends a line to the journal when it begins and one when it ends."""

import os

from stoker import ResourceSettings, StepRetryConfig, pipeline, step

JOURNAL = os.environ["CRASH_JOURNAL"]


def note(text: str) -> None:
    with open(JOURNAL, "a", encoding="ascii") as file:
        file.write(text + "\n")


def make(i: int):
    gpus = 1 if i % 10 == 3 else 0

    @step(
        name=f"s{i}",
        retry=StepRetryConfig(max_retries=5),
        settings={"resources": ResourceSettings(cpu_count=0.25, gpu_count=gpus)},
    )
    def work(left: int, right: int) -> int:
        note(f"begin s{i}")
        value = left + right + i
        note(f"end s{i}")
        return value

    return work


@pipeline(name="crash")
def crash() -> None:
    values = [0, 0, 0, 0, 0]
    for i in range(50):
        k = i % 5
        values[k] = make(i)(left=values[k], right=values[(k + 1) % 5])


if __name__ == "__main__":
    crash()
