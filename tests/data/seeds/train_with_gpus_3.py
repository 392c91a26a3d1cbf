import gc, torch

def cleanup_memory():
    while gc.collect():
        torch.cuda.empty_cache()
