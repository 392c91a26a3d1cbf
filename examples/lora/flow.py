"""The same as train.py, as a flow: a sweep whose configurations are trained on two nodes each.

    python examples/lora/flow.py run                        (needs PyTorch)
    python examples/lora/flow.py run --lrs '[0.003, 0.03]' --ranks '[2, 8]'
    python examples/lora/flow.py resume                     after a failure: finished tasks are taken over
    python examples/lora/flow.py card view choose           the table of losses

`stoker resume` goes on within the same run, from the last checkpoints.
"""

from typing import Any

from stoker import log_metrics
from stoker.flow import (
    FlowSpec,
    JSONType,
    Parameter,
    card,
    checkpoint,
    current,
    pytorch_parallel,
    resources,
    retry,
    step,
)
from stoker.flow.cards import Markdown, Table


class Lora(FlowSpec):
    model = Parameter("model", default="", help="path of a real model (needs transformers)")
    ranks = Parameter("ranks", default=[4], type=JSONType, help="ranks of the two matrices")
    lrs = Parameter("lrs", default=[0.003, 0.01], type=JSONType, help="learning rates")
    steps = Parameter("steps", default=100, help="steps of fine-tuning")

    @step
    def start(self) -> None:
        import torch
        from model import pretrain

        torch.set_num_threads(1)
        report = lambda at, loss: log_metrics({"loss": loss}, step=at)  # noqa: E731
        self.weights = None if self.model else pretrain(200, report)
        self.grid = [(rank, lr) for rank in self.ranks for lr in self.lrs]
        self.next(self.fork, foreach="grid")

    @step
    def fork(self) -> None:
        self.rank, self.lr = self.input
        self.next(self.finetune, num_parallel=2)

    @checkpoint(load_policy="fresh")
    @retry(times=1)
    @resources(cpu=1, gpu=1)
    @pytorch_parallel
    @step
    def finetune(self) -> None:
        import torch
        from tuning import tune

        def save(state: Any, at: int) -> None:
            if current.parallel.node_index == 0:
                torch.save(state, f"{current.checkpoint.directory}/state.pt")
                current.checkpoint.save(metadata={"steps": at})

        state = None
        if current.checkpoint.is_loaded:
            state = torch.load(f"{current.checkpoint.directory}/state.pt")
        tuned = tune(self.weights, self.model, self.rank, self.lr, self.steps, state, save)
        self.tuned = tuned if current.parallel.node_index == 0 else None
        self.next(self.gather)

    @step
    def gather(self, inputs: Any) -> None:
        (self.tuned,) = [one.tuned for one in inputs if one.tuned is not None]
        self.next(self.choose)

    @card(type="blank")
    @step
    def choose(self, inputs: Any) -> None:
        results = sorted((one.tuned for one in inputs), key=lambda one: one["loss"])
        self.best = results[0]
        rows = [[one["rank"], one["lr"], round(one["loss"], 4)] for one in results]
        current.card.append(Markdown("# Fine-tuned with LoRA"))
        current.card.append(Table(rows, headers=["rank", "lr", "loss"]))
        current.card.append(Markdown(f"The best one writes:\n\n> {self.best['sample']}"))
        self.next(self.end)

    @step
    def end(self) -> None:
        print(f"loss {self.best['loss']:.6f} with rank {self.best['rank']}, lr {self.best['lr']}")


if __name__ == "__main__":
    Lora()
