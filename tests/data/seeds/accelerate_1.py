from zenml import step, pipeline
from zenml.integrations.huggingface.steps import run_with_accelerate

@run_with_accelerate(num_processes=4, multi_gpu=True)
@step
def training_step(some_param: int, more: list) -> dict:
    # your training code is below
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator()
    mine = torch.tensor(float(some_param + more[accelerator.process_index]))
    return {"total": accelerator.reduce(mine, "sum").item(), "ranks": accelerator.num_processes}

@pipeline
def training_pipeline(some_param: int, more: list):
    training_step(some_param, more)
