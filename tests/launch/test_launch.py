"""`stoker launch`: the environment of ranks, how a gang ends, and that nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from launch_tools import ENV, WAIT_S, binary, launch, processes_with, python, shell, wait_for

# --- what a rank sees ---


def test_every_rank_once_and_status_zero() -> None:
    done = launch("-n", "4", *shell("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE"))
    assert done.code == 0 and done.err == ""
    assert sorted(done.out.splitlines()) == [f"[{k}] {k} {k} 4 4" for k in range(4)]


def test_sixty_four_ranks() -> None:
    done = launch("-n", "64", *shell("echo $RANK"))
    assert done.code == 0
    assert sorted(done.out.splitlines()) == sorted(f"[{k}] {k}" for k in range(64))


def test_more_ranks_than_the_shells_limit_of_open_files(tmp_path: Path) -> None:
    """The soft limit is for programs that use select; the launcher needs more, and its ranks keep what was set."""
    count = "ulimit -Sn"
    words = f'ulimit -Sn 64; exec {binary()} launch -n 20 --log-dir {tmp_path} -- sh -c "{count}"'
    done = subprocess.run(["sh", "-c", words], env=ENV, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"[{k}] 64" for k in range(20))
    words = words.replace("-Sn 64", "-n 64", 1)
    done = subprocess.run(["sh", "-c", words], env=ENV, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert "20 ranks need about 116 open files; raise the hard limit (ulimit -Hn)" in done.stderr


def test_cpus_are_split() -> None:
    have = len(os.sched_getaffinity(0))
    if have < 2:
        pytest.skip("one CPU can't be split")
    code = "print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    masks: list[int] = []
    for line in launch("-n", "2", *python(code)).out.splitlines():
        cpus, threads = line[4:].rsplit(" ", 1)
        masks += json.loads(cpus)
        assert threads == str(have // 2)
    assert sorted(masks) == sorted(os.sched_getaffinity(0))
    free = launch("-n", "2", "--no-bind", *python("print(len(os.sched_getaffinity(0)))"))
    assert sorted(free.out.splitlines()) == [f"[0] {have}", f"[1] {have}"]


def test_threads_that_the_user_set_stay() -> None:
    done = launch("-n", "2", *shell("echo $OMP_NUM_THREADS"), OMP_NUM_THREADS="7")
    assert sorted(done.out.split()) == ["7", "7", "[0]", "[1]"]


def test_a_python_file_needs_no_word_before_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import sys; print(sys.argv[1:])")
    assert launch("-n", "1", file, "--lr", "3").out == "[0] ['--lr', '3']\n"


# --- the port ---


def test_the_port_is_held_and_rank_zero_can_have_it() -> None:
    code = """
import socket
at = int(os.environ["MASTER_PORT"])
with socket.socket() as s:
    try:
        s.bind(("", at))
        print("stolen")
    except OSError:
        print("held")
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", at))
    s.listen()
    print("mine")
"""
    assert launch("-n", "1", *python(code)).out == "[0] held\n[0] mine\n"


def test_two_gangs_at_once_have_two_ports() -> None:
    words = [binary(), "launch", "-n", "1", "--", "sh", "-c", "echo $MASTER_PORT; sleep 0.3"]
    both = [subprocess.Popen(words, env=ENV, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ports = {p.communicate()[0] for p in both}
    assert len(ports) == 2


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = launch("-n", "2", "--port", port, *shell("echo never"))
    assert done.code == 3 and done.out == ""
    assert f"port {port} is used by another program on this host (pid {os.getpid()}: " in done.err
    assert launch("-n", "1", "--port", port, *shell("echo $MASTER_PORT")).out == f"[0] {port}\n"


def test_two_launchers_on_one_port(tmp_path: Path) -> None:
    """Neither listens, so only the launcher can tell; the second one names the holder."""
    words = [
        binary(),
        "launch",
        "-n",
        "1",
        "--port",
        "29583",
        "--",
        "sh",
        "-c",
        "echo up; sleep 3000",
    ]
    first = subprocess.Popen(words, env=ENV, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None and first.stdout.readline() == "[0] up\n"
    second = launch("-n", "1", "--port", "29583", *shell("echo never"))
    first.terminate()
    first.communicate(timeout=300)
    assert second.code == 3 and second.out == ""
    assert f"port 29583 is used by another program on this host (pid {first.pid}: " in second.err
    assert launch("-n", "1", "--port", "29583", *shell("echo up")).out == "[0] up\n"


# --- the end ---


def test_first_failing_rank_is_named_and_the_others_end() -> None:
    started = time.monotonic()
    done = launch("-n", "4", *shell("[ $RANK = 2 ] && sleep 0.3 && exit 3; exec sleep 3000"))
    assert time.monotonic() - started < 100
    assert done.code == 3
    assert done.sentence == "rank 2 failed: exit status 3; 3 other ranks were ended because of it"


def test_traceback_is_told() -> None:
    # sleeps: for the other rank to begin
    code = "time.sleep(0.3)\nif RANK == 1: raise ValueError('boom')\ntime.sleep(3000)"
    done = launch("-n", "2", "--json", *python(code))
    assert done.code == 1
    assert "(ValueError: boom)" in done.sentence
    assert "the end of rank 1's stderr:\n    Traceback (most recent call last):" in done.err
    first = done.gang["attempts"][0]
    assert done.gang["text"] == done.sentence and first["first"] == 1
    assert [m["text"] for m in first["members"]] == ["ended because of rank 1", "exit status 1"]


def test_traceback_is_told_whole_and_alone() -> None:
    # sleeps: for the other rank to begin
    code = """time.sleep(0.3 + 3000 * (RANK == 0))
import traceback
try:
    raise ValueError('boom')
except ValueError:
    traceback.print_exc()
for i in range(20):
    print('line', i, file=sys.stderr)
sys.exit(1)"""
    done = launch("-n", "2", *python(code))
    told = done.err.partition("the end of rank 1's stderr:\n")[2]
    assert told.startswith("    Traceback (most recent call last):")
    assert "    ValueError: boom\n" in told and "line 1" not in told.replace("line 4", "")


@pytest.mark.parametrize(
    "name, code", [("SIGKILL", 128 + 9), ("SIGSEGV", 128 + 11)], ids=["killed", "segfault"]
)
def test_rank_ends_by_a_signal(name: str, code: int) -> None:
    text = f"if RANK == 0: os.kill(os.getpid(), signal.{name})\ntime.sleep(3000)"
    done = launch("-n", "2", *python(text))
    assert done.code == code
    assert f"rank 0 failed: killed by signal {code - 128} ({name})" in done.sentence
    assert ("Fatal Python error: Segmentation fault" in done.err) == (name == "SIGSEGV")


def test_a_rank_that_ignores_sigterm_is_killed_after_grace() -> None:
    # sleeps: for the other rank to ignore it
    code = "signal.signal(15, signal.SIG_IGN)\nif RANK == 0: time.sleep(0.5); sys.exit(4)\ntime.sleep(3000)"
    started = time.monotonic()
    done = launch("-n", "2", "--grace", "0.3", "--json", *python(code))
    assert done.code == 4 and time.monotonic() - started < 100
    assert done.gang["attempts"][0]["members"][1]["signal"] == 9


def test_program_that_is_not_there() -> None:
    done = launch("-n", "2", "--", "no-such-program")
    assert done.code == 3 and "'no-such-program'" in done.err


def test_how_many_ranks() -> None:
    assert launch(*shell("echo $WORLD_SIZE")).out == "[0] 1\n"
    assert launch("-n", "0", "--", "true").code == 2
    assert launch("-n", "1").code == 2
    assert launch("-n", "gpus", *shell("echo $WORLD_SIZE")).out == "[0] 1\n"


# --- signals, and nothing left behind ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_is_passed_on(number: signal.Signals) -> None:
    code = "trap 'echo got; exit 5' INT TERM; echo up; while :; do sleep 0.05; done"
    p = subprocess.Popen(
        [binary(), "launch", "-n", "2", *shell(code)],
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert p.stdout is not None
    assert {p.stdout.readline(), p.stdout.readline()} == {"[0] up\n", "[1] up\n"}
    p.send_signal(number)
    out, err = p.communicate(timeout=300)
    assert sorted(out.splitlines()) == ["[0] got", "[1] got"]
    assert p.returncode == 128 + number and f"ended by signal {int(number)}" in err


def test_ranks_that_end_well_after_sigterm_have_succeeded() -> None:
    code = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"
    p = subprocess.Popen(
        [binary(), "launch", "-n", "1", *shell(code)], env=ENV, stdout=subprocess.PIPE, text=True
    )
    assert p.stdout is not None and p.stdout.readline() == "[0] up\n"
    p.terminate()
    assert p.wait(WAIT_S) == 0


def test_launcher_killed_leaves_nobody() -> None:
    mark = uuid.uuid4().hex
    code = "sleep 300 & sleep 300"
    p = subprocess.Popen([binary(), "launch", "-n", "2", *shell(code)], env=ENV | {"MARK": mark})
    wait_for(lambda: len(processes_with(mark)) == 3 + 2 * 3)  # the guardians are ours
    p.kill()
    p.wait()
    wait_for(lambda: not processes_with(mark))


def test_parent_killed_leaves_nobody() -> None:
    mark = uuid.uuid4().hex
    code = f"import subprocess; subprocess.run({[str(binary()), 'launch', '-n', '2', '--', 'sleep', '300']})"
    p = subprocess.Popen([os.sys.executable, "-c", code], env=ENV | {"MARK": mark})  # type: ignore[attr-defined]
    wait_for(lambda: len(processes_with(mark)) == 1 + 3 + 2)
    p.kill()
    p.wait()
    wait_for(lambda: not processes_with(mark))


def test_what_a_rank_leaves_in_its_session_ends_with_the_gang() -> None:
    mark = uuid.uuid4().hex
    assert launch("-n", "2", *shell("sleep 300 & exit 0"), MARK=mark).code == 0
    wait_for(lambda: not processes_with(mark))


# --- again ---


def test_restarts(tmp_path: Path) -> None:
    code = """
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("try", count, os.environ["TORCHELASTIC_MAX_RESTARTS"], os.environ["WORLD_SIZE"])
if RANK == 1 and count < 2: sys.exit(9)
if count < 2: time.sleep(3000)
"""
    done = launch("-n", "2", "--restarts", "3", "--json", *python(code))
    assert done.code == 0 and done.gang["restarts"] == 2
    assert "[1] try 2 3 2" in done.err and "restart 1 of 3 with 2 ranks" in done.err
    attempts = done.gang["attempts"]
    assert [a["first"] for a in attempts] == [1, 1, None]
    assert len({a["port"] for a in attempts}) == 3


def test_budget_ends() -> None:
    done = launch("-n", "2", "--restarts", "2", "--json", *shell("exit $((RANK * 6))"))
    assert done.code == 6 and len(done.gang["attempts"]) == 3


def test_restart_with_fewer() -> None:
    code = "[ $WORLD_SIZE = 2 ] && exit 0; [ $RANK = 0 ] && exit 1; exec sleep 3000"
    done = launch("-n", "4", "--min-ranks", "2", "--restarts", "5", "--json", *shell(code))
    assert done.code == 0
    assert [a["ranks"] for a in done.gang["attempts"]] == [4, 3, 2]


def test_min_to_max() -> None:
    """As torchrun writes it: `-n MIN:MAX` starts MAX."""
    code = "[ $WORLD_SIZE = 2 ] && exit 0; [ $RANK = 0 ] && exit 1; exec sleep 3000"
    done = launch("-n", "2:3", "--restarts", "5", "--json", *shell(code))
    assert done.code == 0
    assert [a["ranks"] for a in done.gang["attempts"]] == [3, 2]


@pytest.mark.parametrize("range", ["4:2", "0:2", "2:", ":2", "2:1025", "a:b", "-1:2", "1:2:3"])
def test_no_range(range: str) -> None:
    done = launch("-n", range, *shell("exit 0"))
    assert done.code == 2 and f"-n, --ranks: '{range}'" in done.err and "MIN:MAX" in done.err


def test_range_and_min() -> None:
    done = launch("-n", "2:4", "--min-ranks", "2", *shell("exit 0"))
    assert done.code == 2 and "-n 2:4 and --min-ranks" in done.err


def test_wrong_words() -> None:
    done = launch("-n", "x", *shell("exit 0"))
    assert done.code == 2 and "'x' is neither a number of ranks" in done.err
    done = launch("-n", "1", "--rdzv", "host", *shell("exit 0"))
    assert done.code == 2 and "add --nnodes N" in done.err


SHOW = "import os, sys; print(*map(os.environ.get, ('RANK', 'WORLD_SIZE', 'MASTER_PORT')), *sys.argv[1:])"


@pytest.mark.parametrize(
    "words, lines",
    [
        ("--nproc_per_node=2 show.py a", ["0 2 a", "1 2 a"]),
        (
            "--standalone --nproc-per-node 2 --max_restarts 1 -m show a --b",
            ["0 2 a --b", "1 2 a --b"],
        ),
        ("--nnodes 1 --nproc_per_node gpu --node_rank 0 --master_addr localhost show.py", ["0 1"]),
    ],
)
def test_torchruns_words(tmp_path: Path, words: str, lines: list[str]) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    done = launch("--no-prefix", "--log_dir", tmp_path / "logs", *words.split(), cwd=tmp_path)
    assert done.code == 0
    seen = [line.split() for line in sorted(done.out.splitlines())]
    assert [" ".join([k, n, *rest]) for k, n, _, *rest in seen] == lines
    assert (tmp_path / "logs" / "rank-0" / "stdout.log").exists()


def test_torchruns_port(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    with socket.socket() as held:
        held.bind(("", 0))
        port = held.getsockname()[1]
    done = launch("--nproc_per_node", "1", "--master_port", str(port), "show.py", cwd=tmp_path)
    assert done.out == f"[0] 0 1 {port}\n"


@pytest.mark.parametrize(
    "words, text",
    [
        ("-n 0", "-n, --ranks: '0' is not a whole number from 1 to 1024"),
        ("--ranks=0", "-n, --ranks: '0' is not a whole number"),
        ("--nproc_per_node 0", "--nproc_per_node (--ranks): '0' is not a whole number"),
        ("--nproc-per-node=x", "--nproc-per-node (--ranks): 'x' is neither a number of ranks"),
        ("-n 2 --min_ranks 3", "--min-ranks: '3' is not a whole number from 1 to 2"),
        ("--num_proceses 2", "unknown option '--num_proceses'; did you mean '--num-processes'?"),
        ("-n 2 --standalone --nnodes 2", "--standalone means one node, but --nnodes is 2"),
        ("-n 2 --node_rank 1", "--node-rank is for several nodes: add --nnodes N"),
    ],
)
def test_the_users_own_word_is_named(words: str, text: str) -> None:
    done = launch(*words.split(), *shell("exit 0"))
    assert done.code == 2 and text in done.err


def test_no_device_is_said() -> None:
    done = launch("-n", "gpus", *shell("exit 0"), STOKER_ACCEL="none")
    assert done.code == 0 and "-n gpus:" in done.err and "one rank" in done.err


# --- the view ---


def test_lines_stay_whole() -> None:
    code = """
for i in range(2000):
    sys.stdout.write(f"{RANK}:{i}:" + "x" * 50)
    sys.stdout.flush()
    sys.stdout.write("y" * 50 + "\\n")
"""
    lines = launch("-n", "3", *python(code)).out.splitlines()
    assert len(lines) == 6000
    for line in lines:
        match = re.fullmatch(r"\[(\d)\] (\d):\d+:x{50}y{50}", line)
        assert match and match[1] == match[2], line
    for k in range(3):
        own = [line for line in lines if line.startswith(f"[{k}]")]
        assert [int(line.split(":")[1]) for line in own] == list(range(2000))


def test_files_and_odd_bytes(tmp_path: Path) -> None:
    code = "sys.stdout.buffer.write(b'a\\xffb\\rc\\n\\r\\nno end'); sys.stderr.write('e\\n')"
    done = subprocess.run(
        [binary(), "launch", "-n", "2", "--log-dir", tmp_path / "logs", *python(code)],
        env=ENV,
        capture_output=True,
    )
    assert sorted(done.stdout.splitlines()) == sorted(
        [b"[0] c", b"[0] ", b"[0] no end", b"[1] c", b"[1] ", b"[1] no end"]
    )
    assert (tmp_path / "logs/rank-1/stdout.log").read_bytes() == b"a\xffb\rc\n\r\nno end"
    assert (tmp_path / "logs/rank-0/stderr.log").read_bytes() == b"e\n"
    gang = json.loads((tmp_path / "logs/gang.json").read_text())
    assert gang["status"] == "ok" and gang["ranks"] == 2


def test_no_prefix() -> None:
    assert launch("-n", "1", "--no-prefix", *shell("echo a; echo b")).out == "a\nb\n"


def test_a_view_that_nobody_reads_does_not_hide_a_death(tmp_path: Path) -> None:
    """The launcher's stdout is a full pipe; a rank floods it, another dies."""
    # sleeps: for the pipe to be full
    code = "if RANK == 1: time.sleep(1); sys.exit(7)\nwhile True: print('x' * 1000)"
    p = subprocess.Popen(
        [binary(), "launch", "-n", "2", "--log-dir", tmp_path, *python(code)],
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert p.wait(WAIT_S) == 7
    first = json.loads((tmp_path / "gang.json").read_text())["attempts"][0]
    assert first["first"] == 1


def test_a_view_that_is_gone_does_not_stop_ranks() -> None:
    code = "for i in range(3000): print('x' * 100)\nsys.exit(3)"
    words = " ".join(f"'{w}'" for w in [str(binary()), "launch", "-n", "1"])
    inner = python(code.replace("'", '"'))
    quoted = " ".join("'" + w.replace("'", "'\\''") + "'" for w in inner)
    done = subprocess.run(
        ["bash", "-c", f"{words} {quoted} | head -1; exit ${{PIPESTATUS[0]}}"],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 3, done.stderr
