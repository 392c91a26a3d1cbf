"""Faults on the way to the cluster and inside it: no job is lost, submitted twice or left."""

from __future__ import annotations

import contextlib
import json
import re
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster
from kube_client import JOBS, PODS, Client
from kube_driver import Driver

Start = Callable[..., Driver]
N = 20


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    made: list[Driver] = []

    def begin(*args: Any, **more: Any) -> Driver:
        made.append(Driver(cluster.kubeconfig(tmp_path / "config"), *args, **more))
        return made[-1]

    yield begin
    cluster.call(cluster.faults.clear)
    for driver in made:
        driver.close()


def run_many(d: Driver, n: int = N, script: str = "echo here; exit 3") -> None:
    """All jobs end with 3, each once."""
    for i in range(1, n + 1):
        d.submit(i, script)
    ends: dict[int, int] = {}
    while len(ends) < n:
        r = d.until(lambda r: r["state"] in ("ended", "failed", "error"))
        assert r["id"] not in ends, r
        assert r["exit_status"] == 3, json.dumps(r)
        ends[r["id"]] = 1
    for i in range(1, n + 1):
        assert d.log(i) == "here\n"
        d.do("forget", id=i)


def check_once(api: Client, cluster: Cluster, n: int = N) -> None:
    """Nothing is left, and nobody saw a second pod of a job (its line would be there twice)."""
    cluster.call(cluster.faults.clear)
    api.until(PODS, lambda o: not o["items"])
    assert api.ask("GET", JOBS).json["items"] == []


FAULTS: dict[str, list[dict[str, Any]]] = {
    "storm": [{"match": ".", "status": 503, "chance": 0.3, "times": 100}],
    "asked to wait": [{"match": "^POST", "status": 429, "times": 5}],
    "answers lost": [{"match": "^POST", "cut": "before", "after": True, "times": 8}],
    "half answers": [
        {"match": "^(POST|GET)", "cut": "half", "after": True, "chance": 0.2, "times": 40}
    ],
    "slow": [{"match": "^POST", "delay_s": 0.5, "times": 10}],
    "deletes lost": [{"match": "^DELETE", "cut": "before", "after": True, "times": 8}],
    "events twice": [{"match": "watch=true", "watch": {"double": 1.0}}],
    "events lost": [{"match": "watch=true", "watch": {"drop": 0.3, "cut_after": 15}, "times": 30}],
    "watches cut": [{"match": "watch=true", "watch": {"cut_after": 3}, "times": 60}],
    "half events": [{"match": "watch=true", "watch": {"half": True, "cut_after": 5}, "times": 40}],
    "logs cut": [{"match": "/log", "cut": "half", "after": True, "times": 15}],
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, api: Client, cluster: Cluster, start: Start) -> None:
    for fault in FAULTS[name]:
        cluster.call(lambda f=fault: cluster.faults.add(**f))
    d = start()
    run_many(d)
    check_once(api, cluster)


def test_too_old_to_go_on(api: Client, cluster: Cluster, start: Start) -> None:
    """410 Gone: what was heard is too old, all is listed again; what went meanwhile is seen missing."""
    d = start()
    d.submit(1, "echo up; sleep 60")
    d.submit(2, "echo up; sleep 1; exit 4")
    for _ in (1, 2):
        d.until(lambda r: r["state"] == "log")
    cluster.call(lambda: cluster.faults.add(match="watch=true", status=503, times=6))
    cluster.restart(0.3)
    api.ask("DELETE", f"{JOBS}/s-r1-train-1-1?propagationPolicy=Background")
    cluster.call(cluster.control.do_compact)
    ends = {}
    while len(ends) < 2:
        r = d.until(lambda r: r["state"] in ("ended", "failed"))
        ends[r["id"]] = r
    assert ends[1]["failure"] == "lost"
    assert ends[2]["exit_status"] == 4


def test_server_away(cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; exit 3")
    d.until(lambda r: r["state"] == "log")
    cluster.restart(1.0)
    assert d.end(1)["exit_status"] == 3
    assert d.log(1) == "1\n2\n3\n4\n5\n6\n"


@pytest.mark.parametrize("is_cut", [False, True])
def test_end_before_the_pods_news(cluster: Cluster, start: Start, is_cut: bool) -> None:
    """The Job is Complete before its pod was seen to run: its log is read nevertheless, also if it is cut."""
    late = {"match": r"/pods\?.*watch=true", "delay_s": 3.0}
    cluster.call(lambda: cluster.faults.add(**late))
    if is_cut:
        cluster.call(lambda: cluster.faults.add(match="/log", cut="half", after=True, times=2))
    d = start()
    d.submit(1, "echo here")
    d.submit(2, "echo $JOB_COMPLETION_INDEX", nodes=2)
    ends = [d.until(lambda r: r["state"] in ("ended", "failed")) for _ in (1, 2)]
    assert {end["exit_status"] for end in ends} == {0}, ends
    assert (d.log(1), d.log(2, 0), d.log(2, 1)) == ("here\n", "0\n", "1\n")


def test_log_lines_once(cluster: Cluster, start: Start) -> None:
    """However often a log is cut, each line comes once and in order, also long ones."""
    d = start()
    script = (
        "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); "
        "[ $((i % 40)) = 0 ] && sleep 0.2; done; "
        "head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"
    )
    cluster.call(lambda: cluster.faults.add(match="/log", cut="half", after=True, times=2))
    d.submit(1, script)
    for _ in range(3):
        time.sleep(0.4)  # sleeps: to cut it at several places
        cluster.restart(0.05)
    assert d.end(1)["exit_status"] == 0
    expected = "".join(f"line {i}\n" for i in range(400)) + "x" * 100000 + "\nend\n"
    assert d.log(1) == expected


PLUGIN = """\
#!/bin/sh
# A token that changes each time; counts how often it was asked.
echo asked >> {folder}/asked
case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) ;; *) exit 9;; esac
[ "$FROM_CONFIG" = yes ] || exit 8
echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":'
echo '{{"token":"'$(cat {folder}/token)'"{until}}}}}'
"""


def plugin_config(cluster: Cluster, folder: Path, until: str = "") -> Path:
    config = cluster.kubeconfig(folder / "config")
    script = folder / "plugin"
    script.write_text(PLUGIN.format(folder=folder, until=until))
    script.chmod(0o755)
    (folder / "token").write_text(cluster.ADMIN_TOKEN)
    text = config.read_text()
    user = textwrap.indent(
        "exec:\n  apiVersion: client.authentication.k8s.io/v1\n  command: ./plugin\n"
        "  env: [{name: FROM_CONFIG, value: 'yes'}]\n  interactiveMode: Never\n",
        "    ",
    )
    config.write_text(re.sub(r"    token: .*\n", user, text))
    return config


def test_token_that_expires(cluster: Cluster, tmp_path: Path) -> None:
    config = plugin_config(cluster, tmp_path)
    d = Driver(config)
    d.submit(1, "exit 3")
    assert d.end(1)["exit_status"] == 3
    assert (tmp_path / "asked").read_text().count("asked") == 1
    fresh = cluster.call(cluster.token_of, "token-admin-2")
    cluster.grants.add(("token-admin-2", "default"))
    (tmp_path / "token").write_text(fresh)
    cluster.call(cluster.control.do_expire, cluster.ADMIN_TOKEN)
    d.submit(2, "exit 4")
    assert d.end(2)["exit_status"] == 4
    assert (tmp_path / "asked").read_text().count("asked") == 2
    d.close()


@pytest.mark.parametrize(("left_s", "asked"), [(-3600, 1), (3600, 1), (11.5, 2)])
def test_token_that_says_when(cluster: Cluster, tmp_path: Path, left_s: float, asked: int) -> None:
    """It is asked for anew ten seconds before; one that had expired before it came says that our clock is ahead."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + left_s))
    config = plugin_config(cluster, tmp_path, f',"expirationTimestamp":"{at}"')
    d = Driver(config)
    d.submit(1, "exit 3")
    assert d.end(1)["exit_status"] == 3
    if asked > 1:
        time.sleep(2)  # sleeps: a token expires by the clock
    d.submit(2, "exit 3")
    assert d.end(2)["exit_status"] == 3
    d.close()
    n = (tmp_path / "asked").read_text().count("asked")
    assert n == 1 if asked == 1 else n > 1


def wait(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_a_plugin_that_lives_on(cluster: Cluster, tmp_path: Path) -> None:
    """It has answered and closed its output: it is ended with all that it has started."""
    config = plugin_config(cluster, tmp_path)
    with (tmp_path / "plugin").open("a") as plugin:
        plugin.write(f"exec >&-\nsleep 1000 &\necho $$ > {tmp_path}/pid\nsleep 1000\n")
    d = Driver(config)
    d.submit(1, "exit 3")
    assert d.end(1)["exit_status"] == 3
    group = int((tmp_path / "pid").read_text())
    wait(lambda: not in_session(group), "it lives")
    d.close()


def in_session(leader: int) -> list[str]:
    """Of processes that aren't zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(stat.parent.name)
    return found


def test_a_slow_plugin(cluster: Cluster, tmp_path: Path) -> None:
    """Who needs no new credential doesn't wait for it: what runs is heard meanwhile."""
    config = plugin_config(cluster, tmp_path)
    d = Driver(config)
    d.submit(1, "i=0; while :; do i=$((i + 1)); echo $i; sleep 0.05; done")
    d.until(lambda r: r["state"] == "log")
    gate = tmp_path / "gate"
    script = tmp_path / "plugin"
    slow = f"echo slow >> {tmp_path}/asked\nuntil [ -e {gate} ]; do sleep 0.05; done\n"
    script.write_text(script.read_text().replace("#!/bin/sh\n", "#!/bin/sh\n" + slow, 1))
    fresh = cluster.call(cluster.token_of, "token-admin-2")
    cluster.grants.add(("token-admin-2", "default"))
    (tmp_path / "token").write_text(fresh)
    cluster.call(cluster.control.do_expire, cluster.ADMIN_TOKEN)
    d.submit(2, "exit 4")
    wait(lambda: "slow" in (tmp_path / "asked").read_text(), "it wasn't asked")
    n = [0]

    def has_gone_on(r: dict[str, Any]) -> bool:
        n.append(int(r["data"].split()[-1]) if r["state"] == "log" and r["data"].split() else n[-1])
        return n[-1] > n[1] + 40  # so much is not on its way

    d.until(has_gone_on)
    gate.touch()
    assert d.end(2)["exit_status"] == 4
    d.close()


def test_closed_while_a_plugin_runs(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody waits for it, and nothing of it is left."""
    config = plugin_config(cluster, tmp_path)
    script = tmp_path / "plugin"
    never = f"echo $$ > {tmp_path}/pid\nsleep 1000\n"
    script.write_text(script.read_text().replace("#!/bin/sh\n", "#!/bin/sh\n" + never, 1))
    d = Driver(config)
    d.submit(1)
    wait(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "not asked")
    began = time.monotonic()
    d.close()
    assert time.monotonic() - began < 30
    group = int((tmp_path / "pid").read_text())
    wait(lambda: not in_session(group), "it lives")


def test_token_that_nobody_takes(cluster: Cluster, tmp_path: Path) -> None:
    d = Driver(cluster.kubeconfig(tmp_path / "config", token="wrong"))
    d.submit(1)
    told = d.until(lambda r: r["state"] == "error")
    assert (
        "context 'fake'" in told["text"]
        and "Unauthorized: it rejects these credentials; log in again" in told["text"]
    )


def test_certificate(cluster: Cluster, tmp_path: Path) -> None:
    d = Driver(cluster.kubeconfig(tmp_path / "config", certificate=True))
    d.submit(1, "exit 3")
    assert d.end(1)["exit_status"] == 3
    d.close()


def test_certificate_of_somebody_else(cluster: Cluster, tmp_path: Path) -> None:
    config = cluster.kubeconfig(tmp_path / "config")
    text = re.sub(
        r"certificate-authority-data: \S+", "tls-server-name: kubernetes", config.read_text()
    )
    config.write_text(text)
    d = Driver(config)
    d.submit(1)
    told = d.until(lambda r: r["state"] == "error")
    assert "certificate" in told["text"]


def test_no_right(cluster: Cluster, tmp_path: Path) -> None:
    d = Driver(cluster.kubeconfig(tmp_path / "config", token="alice-token"))
    d.submit(1)
    told = d.until(lambda r: r["state"] in ("error", "failed"))
    assert "no right to create jobs" in told["text"] and "stoker stack check" in told["text"]


def test_nothing_listens(tmp_path: Path, cluster: Cluster) -> None:
    """A job that can't be sent fails with its reason, in time."""
    config = cluster.kubeconfig(tmp_path / "config")
    config.write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", config.read_text()))
    d = Driver(config, pending_ms=2000)
    d.submit(1)
    end = d.end(1)
    assert end["failure"] == "start" and "127.0.0.1" in end["text"]
    d.close()


def test_stopped_while_it_is_away(api: Client, cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, "echo up; sleep 60")
    d.until(lambda r: r["state"] == "log")
    cluster.call(lambda: cluster.faults.add(match="^DELETE", status=500, times=4))
    d.do("stop", id=1, grace_ms=100)
    assert d.end(1)["failure"] == "cancelled"
    api.until(PODS, lambda o: not o["items"])


def test_many(api: Client, start: Start) -> None:
    """A hundred at once share two watches and a few connections."""
    d = start()
    began = time.monotonic()
    run_many(d, 100, "echo here; sleep 0.2; exit 3")
    assert time.monotonic() - began < 120
    api.until(JOBS, lambda o: not o["items"])
