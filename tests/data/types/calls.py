"""Right and wrong calls, for type checkers: a line with `# error` must be marked, no other one."""

from typing import Tuple

from stoker import (
    CachePolicy,
    DockerSettings,
    ResourceSettings,
    StepRetryConfig,
    checkpoint,
    pipeline,
    step,
)


@step
def load(rows: int = 10) -> str:
    return "x" * rows


@step(retry=StepRetryConfig(max_retries=1), settings={"resources": ResourceSettings(gpu_count=1)})
def train(data: str, lr: float = 0.1) -> float:
    checkpoint.save(data)
    return lr


@step(cache_policy=CachePolicy(track="strict"))
def split(data: str) -> Tuple[str, str]:
    return data, data


@pipeline
def right(lr: float = 0.1) -> None:
    data = load(rows=5)
    loss = train(data, lr=lr)
    train(data, lr=loss)
    train(data, id="again", after=loss)
    train(data, after=[data])
    a, b = split(data)
    train(a)
    train(b, 0.2)


@pipeline(enable_cache=False)
def wrong() -> None:
    load(rows="five")  # error
    data = load()
    train(data, rate=0.1)  # error
    train()  # error
    train(3)  # error
    load(load())  # error
    a, b, c = split(data)  # error
    data + 1  # error


ResourceSettings(cpu_count=2, gpu_count=1, memory="8GB")
ResourceSettings(nonsense=1)  # error
ResourceSettings(gpu_count="many")  # error
DockerSettings(parent_image="x")
DockerSettings(parent_imgae="x")  # error


@step(enable_cahce=False)  # error
def misspelt() -> None: ...


if __name__ == "__main__":
    run = right(lr=0.2)
    run.id.upper()
    right(rate=0.2)  # error
    right("x")  # error
    wrong()
