"""Fine-tune a small language model with LoRA on two ranks; kill it, and it goes on where it was.

    python examples/lora/train.py                               (needs PyTorch)
    stoker run examples/lora/train.py -p rank=8 -p lr=0.02      another configuration
    stoker run examples/lora/train.py:sweep                     four of them in one run, and the best
    stoker run examples/lora/train.py -p model=~/models/gpt2    a real model (needs transformers)
    kill -9 <pid of the engine>; stoker resume                  from the last checkpoint
    stoker diff -p lora --min finetune.unseen --open              all runs side by side

With two GPUs the ranks use them and NCCL; without, CPUs and gloo. examples/lora/flow.py is the same as a flow.
"""

from typing import Annotated, Any

from stoker import ResourceSettings, checkpoint, log_metadata, log_metrics, pipeline, step, torchrun

RANKS = 2


@step
def pretrain(model: str, steps: int = 200) -> Annotated[Any, "weights"]:
    """The model that is fine-tuned: made here, or None if `model` is the path of a real one."""
    if model:
        return None
    import torch
    from model import pretrain as train

    torch.set_num_threads(1)
    return train(steps, lambda at, loss: log_metrics({"loss": loss}, step=at))


@torchrun(nproc_per_node=RANKS)
@step(
    settings={"resources": ResourceSettings(cpu_count=1, gpu_count=RANKS)},
    retry={"max_retries": 1},
)
def finetune(
    weights: Any, model: str, rank: int, lr: float, steps: int
) -> Annotated[dict, "tuned"]:
    """An adapter of the model; rank 0's is the step's output."""
    from tuning import tune

    def save(state: Any, at: int) -> None:
        checkpoint.save(state, step=at)

    tuned = tune(weights, model, rank, lr, steps, checkpoint.load(default=None), save)
    log_metadata({"unseen": tuned["loss"]})
    return tuned


@step
def compare(tuned: list) -> Annotated[str, "summary"]:
    """The best of several configurations, as a table in Markdown."""
    rows = sorted(tuned, key=lambda one: one["loss"])
    lines = [f"| {one['rank']} | {one['lr']} | {one['loss']:.3f} |" for one in rows]
    return "\n".join(["| rank | lr | loss |", "|---|---|---|", *lines, "", rows[0]["sample"]])


@pipeline
def lora(model: str = "", rank: int = 4, lr: float = 0.01, steps: int = 100) -> None:
    finetune(pretrain(model), model, rank, lr, steps)


@pipeline
def sweep(model: str = "", steps: int = 100) -> None:
    weights = pretrain(model)
    grid = [(rank, lr) for rank in (2, 8) for lr in (0.003, 0.03)]
    compare([finetune(weights, model, rank, lr, steps) for rank, lr in grid])


if __name__ == "__main__":
    result = lora().steps["finetune"].output.load()
    print(f"loss {result['loss']:.6f}\n{result['sample']}")
