"""`stoker simulate`: files in, one table out."""

from __future__ import annotations

import re

import pytest
from cli_tools import Cli

JOBS = """# three kinds
gpus,gpu_memory,gpu_class,count
1,,H100,6
1,20GB,,8
4,,A100,1
"""
NODES = "nodes,machine,cpus,memory\n2,4xH100,64,512GB\n1,4xA100,64,512GB\n"


def test_files_in_both_formats_say_the_same(cli: Cli) -> None:
    cli.write("jobs.csv", JOBS)
    cli.write("nodes.csv", NODES)
    cli.write(
        "jobs.json",
        '[{"gpus": 1, "gpu_class": "H100", "count": 6}, {"gpus": 1, "gpu_memory": "20GB", "count": 8},'
        ' {"gpus": 4, "gpu_class": "A100"}]',
    )
    cli.write(
        "nodes.json",
        '[{"nodes": 2, "machine": "4xH100", "cpus": 64, "memory": "512GB"},'
        ' {"machine": "4xA100", "cpus": 64, "memory": "512GB"}]',
    )
    answers = [
        cli.json("simulate", "--cluster", f"nodes.{kind}", "--workload", f"jobs.{kind}")
        for kind in ("csv", "json")
    ]
    for answer in answers:
        for policy in answer["policies"]:
            del policy["decide_us"]
    assert answers[0] == answers[1]
    ours = answers[0]["policies"][0]
    assert ours["policy"] == "stoker" and ours["refused"] == 0 and ours["placed"] == 15
    assert answers[0]["devices"] == 12 and answers[0]["jobs"] == 15
    assert [p["policy"] for p in answers[0]["policies"]] == [
        "stoker",
        "best-fit",
        "fragment",
        "random",
    ]


def test_sums_have_ten_digits(cli: Cli) -> None:
    cli.write("jobs.csv", "gpus,gpu_memory,count\n1,7GB,3\n1,11GB,5\n")
    text = cli("simulate", "--json", "--cluster", "2*8xH100", "--workload", "jobs.csv").out
    sums = dict(re.findall(r'"(devices|asked_devices)":([^,]+)', text))
    assert sums == {key: f"{float(value):.10g}" for key, value in sums.items()}
    assert sums["devices"] == "16" and "." in sums["asked_devices"]


def test_the_same_seed_is_the_same_answer(cli: Cli) -> None:
    words = ("simulate", "--cluster", "16*8xH100", "--policy", "random", "--policy", "stoker")
    one, same, other = (cli.json(*words, "--seed", seed)["policies"] for seed in ("5", "5", "6"))
    used = [[p["in_use_percent"] for p in answer] for answer in (one, same, other)]
    assert used[0] == used[1] != used[2]
    assert used[0][0] > used[0][1], "ours beats random placement"


def test_jobs_that_end_wait_in_line(cli: Cli) -> None:
    cli.write("jobs.csv", "arrival,duration,gpus,count\n0,60,8,3\n")
    text = cli(
        "simulate", "--cluster", "8xH100", "--workload", "jobs.csv", "--policy", "stoker"
    ).out
    row = text.splitlines()[-1].split()
    assert row[0] == "stoker" and row[2] == "-" and row[5] == "60.0" and row[7] == "180.0"


def test_a_made_up_workload_with_ends(cli: Cli) -> None:
    answer = cli.json("simulate", "--cluster", "4*8xH100", "--mean", "10m", "--load", "0.5")
    assert all(p["refused"] == 0 and p["mean_wait_s"] is not None for p in answer["policies"])
    assert all(p["in_use_percent"] < 65 for p in answer["policies"])


@pytest.mark.parametrize(
    "words, says",
    [
        ((), "--cluster"),
        (("--cluster", "8xH1OO"), "H1OO"),
        (("--cluster", "nowhere.csv"), "nowhere.csv"),
        (("--cluster", "8xH100", "--policy", "best"), "best-fit"),
        (("--cluster", "8xH100", "--workload", "no.csv"), "no.csv"),
        (("--cluster", "8xH100", "--load", "much"), "much"),
        (("--cluster", "8xH100", "--mean", "soon"), "soon"),
        (("--cluster", "bad.csv"), "bad.csv:2"),
        (("--cluster", "8xH100", "--workload", "bad.csv", "--load", "2"), "--workload"),
    ],
)
def test_wrong_words(cli: Cli, words: tuple[str, ...], says: str) -> None:
    cli.write("bad.csv", "nodes,machine\n0,8xH100\n")
    done = cli("simulate", *words)
    assert done.code == 2 and says in done.err, done.err
