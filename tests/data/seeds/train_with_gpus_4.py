from zenml import step, pipeline
from zenml.integrations.huggingface.steps import run_with_accelerate

@run_with_accelerate(num_processes=4, multi_gpu=True)
@step
def training_step(weights: list) -> dict:
    import os  # your distributed training code
    import torch
    from accelerate import Accelerator

    cleanup_memory()
    accelerator = Accelerator()
    mine = torch.tensor(float(weights[accelerator.process_index]))
    total = accelerator.reduce(mine, "sum").item()
    return {"total": total, "ranks": accelerator.num_processes, "rank": int(os.environ["RANK"])}

@pipeline
def dist_pipeline(weights: list):
    training_step(weights=weights)
