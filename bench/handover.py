"""An array from one step to the next, for bench.py: `handover.py MIB` prints {"stoker_s", "numpy_s"}.

Stoker's time runs from the producing function's return to the first line of the consuming one; numpy's is np.save, then
np.load(mmap_mode="c") of the same array in one process. Both leave the file in the page cache.
"""

import json
import os
import sys
import time

import numpy as np

from stoker import pipeline, step

MIB = int(sys.argv[1])


def make_array() -> np.ndarray:
    os.sync()  # neither side waits for what the other one left to be written
    return np.random.default_rng(1).integers(0, 255, MIB << 20, dtype=np.uint8)


@step(enable_cache=False)
def produce() -> np.ndarray:
    array = make_array()
    with open("made", "w", encoding="ascii") as file:
        file.write(repr(time.time()))
    return array


@step(enable_cache=False)
def consume(array: np.ndarray) -> float:
    now = time.time()
    assert array[0] >= 0 and array[-1] >= 0 and array.nbytes == MIB << 20
    return now


@pipeline(name="array")
def hand_over() -> None:
    consume(produce())


def numpy_alone() -> float:
    array = make_array()
    start = time.time()
    np.save("alone.npy", array)
    again = np.load("alone.npy", mmap_mode="c")
    assert again[0] == array[0] and again[-1] == array[-1]
    seconds = time.time() - start
    os.unlink("alone.npy")
    return seconds


if __name__ == "__main__":
    run = hand_over()
    seen = run.steps["consume"].output.load()
    with open("made", encoding="ascii") as made:
        print(json.dumps({"stoker_s": seen - float(made.read()), "numpy_s": numpy_alone()}))
