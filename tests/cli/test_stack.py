"""`stoker stack`: the places of stoker.yaml, and whether they can be used."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections import Counter
from pathlib import Path

import pytest
from cli_tools import Cli

FILE = """\
stacks:
  prod:
    backend: batch
    store: STORE
    default_image: python:3.11
    options: {queue: q}
    limits: {memory: 400GB}
    pools:
      a100: {nodes: 4, holds: {cpu_count: 96, memory: 1TB, gpu_count: 8, gpu_class: A100-80GB}, price: 32.8}
  lab: {backend: docker, registry: "reg:5000/team"}
"""


def write(cli: Cli, text: str = FILE) -> None:
    cli.write("stoker.yaml", text.replace("STORE", str(cli.folder / "share")))


def test_list_has_the_files_stacks_and_one_of_each_backend(cli: Cli) -> None:
    write(cli)
    lines = cli("stack", "list").out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["prod", "batch"],
        ["lab", "docker"],
        ["local", "local"],
        ["docker", "docker"],
        ["kubernetes", "kubernetes"],
        ["batch", "batch"],
        ["slurm", "slurm"],
        ["ssh", "ssh"],
    ]
    assert "no store yet" in lines[4] and str(cli.folder / "share") in lines[0]
    assert cli("stack").out.splitlines() == lines
    told = json.loads(cli("stack", "--json").out)
    assert [stack["name"] for stack in told] == [line.split()[0] for line in lines]


def test_a_stack_that_its_backends_word_means_is_listed_once(cli: Cli) -> None:
    cli.write("stoker.yaml", "stacks: {desk: {backend: ssh, hosts: [gpu1]}}")
    told = json.loads(cli("stack", "--json").out)
    assert [one["name"] for one in told if one["backend"] == "ssh"] == ["desk"]
    assert json.loads(cli("stack", "show", "ssh", "--json").out)["name"] == "desk"


def test_show_tells_all_that_a_stack_says(cli: Cli) -> None:
    write(cli)
    text = cli("stack", "show", "prod").out
    for words in [
        "prod (batch)",
        "python:3.11",
        '{"queue":"q"}',
        "400 GB",
        "4 nodes of 96 CPUs, 1 TB, 8 × A100-80GB",
        "32.8 an hour",
        "30 m",
    ]:
        assert words in text
    told = json.loads(cli("stack", "show", "prod", "--json").out)
    assert told["pools"][0]["holds"] == {
        "cpu_count": 96.0,
        "memory_bytes": 10**12,
        "gpu_count": 8,
        "gpu_class": "A100-80GB",
    }
    assert told["limits"] == {"memory_bytes": 4 * 10**11} and told["max_jobs"] == 1000


def test_check_says_what_stands_in_the_way(cli: Cli) -> None:
    write(cli)
    assert "this machine itself" in cli("stack", "check", "local").out
    # an engine's socket that isn't there
    cli.write("stoker.yaml", "stacks: {lab: {backend: docker, socket: /nowhere.sock}}")
    refused = cli("stack", "check", "lab")
    assert refused.code == 3
    assert refused.out.startswith("✗") and "/nowhere.sock" in refused.out
    # a folder that can't be made, an option that isn't known
    write(cli, FILE.replace("STORE", "/proc/nowhere").replace("queue: q", "queue: q, quue: x"))
    told = json.loads(cli("stack", "check", "prod", "--json").out)
    bad = [finding["text"] for finding in told["findings"] if not finding["ok"]]
    assert not told["ok"]
    assert any("/proc/nowhere" in text for text in bad)
    assert any("quue" in text for text in bad)


def test_wrong_words(cli: Cli) -> None:
    assert "did you mean 'docker'" in cli("stack", "show", "dokcer").err
    assert "'chek'" in cli("stack", "chek", "x").err
    assert "'stoker stack list'" in cli("stack", "check").err
    assert "takes no name" in cli("stack", "list", "x").err


def test_manifests_are_what_would_be_submitted(cli: Cli) -> None:
    cli.write(
        "stoker.yaml",
        "stacks:\n  prod: {backend: kubernetes, store: s3://b/p, default_image: 127.0.0.1:1/i:1, carry_volume: /opt/stoker}\n",
    )
    doc = cli.document(
        {
            "here": {"run": "true", "backend": "local"},
            "train": {"run": "true", "resources": {"gpu_count": 2}, "secrets": ["token"]},
            "shard": {"run": "true", "gang": {"ranks": 1, "nodes": 2}},
        }
    )
    told = cli("plan", "--with", "prod", "--manifest", doc, STOKER_SECRET_token="hunter2")
    assert told.code == 0, told.err
    texts = [text for text in told.out.split("---\n") if not text.startswith("# step")]
    made = [json.loads(text.split("\n# step")[0]) for text in texts]
    assert [m["kind"] for m in made] == ["Job", "Secret", "Job", "Service"]
    assert "hunter2" not in told.out and "(secret)" in told.out
    (container,) = made[0]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["command"][-2:] == ["s3://b/p", "runs/RUN/train/0/1"]
    assert made[2]["spec"]["completions"] == 2
    one = cli("plan", "--with", "prod", "--manifest", doc, "shard").out
    assert "train" not in one and '"completions": 2' in one
    assert cli("plan", "--with", "prod", "--manifest", doc, "here").code == 2
    assert cli("plan", "--with", "prod", "--manifest", doc, "shrad").code == 2
    assert (
        "nothing to submit" in cli("plan", "--manifest", cli.document({"a": {"run": "true"}})).err
    )


PIPELINE = """\
from stoker import ResourceSettings, pipeline, step

@step(settings={"resources": ResourceSettings(gpu_class="A100")})
def train() -> int:
    return 1

@pipeline
def p():
    train()

if __name__ == "__main__":
    p()
"""
FLOW = """\
from stoker.flow import FlowSpec, kubernetes, step

class F(FlowSpec):
    @kubernetes(trainium=16)
    @step
    def start(self):
        self.next(self.end)

    @step
    def end(self):
        pass

if __name__ == "__main__":
    F()
"""


@pytest.mark.parametrize(
    ("text", "steps", "asked"),
    [
        (PIPELINE, ["train"], {"nvidia.com/gpu": "1"}),
        (FLOW, ["start", "end"], {"aws.amazon.com/neuron": "16"}),
    ],
)
def test_manifests_of_pipelines_and_flows(
    cli: Cli, text: str, steps: list[str], asked: dict[str, str]
) -> None:
    cli.write(
        "stoker.yaml",
        "stacks:\n  prod: {backend: kubernetes, store: s3://b/p, default_image: 127.0.0.1:1/i:1, carry_volume: /opt/stoker}\n",
    )
    cli.write("file.py", text)
    told = cli("plan", "--with", "prod", "--manifest", "file.py")
    assert told.code == 0, told.err
    assert re.findall(r"^# step '(\w+)'", told.out, re.M) == steps
    documents = re.split(r"^(?:# step .*|---)\n", told.out, flags=re.M)
    made = [json.loads(one) for one in documents if one.strip()]
    assert [m["kind"] for m in made] == ["Job"] * len(steps)
    (container,) = made[0]["spec"]["template"]["spec"]["containers"]
    assert asked.items() <= container["resources"]["limits"].items()
    behind = cli("plan", "--with", "prod", "file.py", "--manifest")
    assert behind.code == 0 and behind.out == told.out, behind.err


def test_pods_reach_the_store_that_aws_files_name(cli: Cli) -> None:
    """`aws configure` puts region and endpoint into a file, which a container doesn't have."""
    cli.write(
        "stoker.yaml",
        "stacks:\n  prod: {backend: kubernetes, store: s3://b/p, default_image: 127.0.0.1:1/i:1, carry_volume: /opt/stoker}\n",
    )
    config = cli.write(
        "aws", "[default]\nregion = us-west-2\n[profile lab]\nregion = eu-west-1\n"
        "endpoint_url = http://minio:9000\n"
    )  # fmt: skip
    doc = cli.document({"a": {"run": "true"}})

    def told(**env: str) -> dict[str, str]:
        given = cli("plan", "--with", "prod", "--manifest", doc, AWS_CONFIG_FILE=str(config), **env)
        job = json.loads(given.out.split("---\n")[1])
        (container,) = job["spec"]["template"]["spec"]["containers"]
        return {e["name"]: e["value"] for e in container["env"] if e["name"].startswith("AWS_")}

    assert told() == {"AWS_REGION": "us-west-2"}
    lab = {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_S3": "http://minio:9000"}
    assert told(AWS_PROFILE="lab") == lab
    said = {"AWS_DEFAULT_REGION": "eu-north-1", "AWS_ENDPOINT_URL": "http://other:1"}
    assert told(AWS_PROFILE="lab", **said) == said


def metaflow(cli: Cli, text: str, name: str = "config.json") -> dict[str, str]:
    cli.write(f"mf/{name}", text)
    return {"METAFLOW_HOME": str(cli.folder / "mf"), "HOME": str(cli.folder)}


def test_metaflows_settings(cli: Cli) -> None:
    """Metaflow's file: the environment overrides it, and the stack overrides both."""
    config = {
        "METAFLOW_DATASTORE_SYSROOT_S3": "s3://team/mf/",
        "METAFLOW_BATCH_JOB_QUEUE": "from-file",
        "METAFLOW_BATCH_DEFAULT_TAGS": {"team": "ml"},
    }
    env = metaflow(cli, json.dumps(config))
    told = json.loads(cli("stack", "show", "batch", "--json", **env).out)
    path = str(cli.folder / "mf/config.json")
    assert (told["store"], told["store_from"]) == ("s3://team/mf/stoker", path)
    assert told["inherited"] == {
        "queue": {"value": "from-file", "from": path},
        "aws_batch_tags": {"value": '{"team":"ml"}', "from": path},
    }
    shown = cli("stack", "show", "batch", METAFLOW_BATCH_JOB_QUEUE="mine", **env).out.splitlines()
    queue = next(i for i, line in enumerate(shown) if line.split()[0] == "queue")
    assert shown[queue].split() == ["queue", "mine"]
    assert shown[queue + 1].split() == ["from", "METAFLOW_BATCH_JOB_QUEUE"]
    checked = cli("stack", "check", "batch", **env).out
    assert f"queue is from-file, from METAFLOW_BATCH_JOB_QUEUE in {path}" in checked

    # what would be submitted says so, too
    cli.write("stoker.yaml", "stacks: {own: {backend: batch, options: {queue: said}}}")
    image = {"docker": {"parent_image": "127.0.0.1:1/i:1"}}
    doc = cli.document({"a": {"run": "true", **image}})
    for stack, queue_name in [("batch", "from-file"), ("own", "said")]:
        made = cli("plan", "--with", stack, "--manifest", doc, **env)
        assert f'"jobQueue":"{queue_name}"' in made.out, made.err

    # of Kubernetes as well
    env["METAFLOW_KUBERNETES_NAMESPACE"] = "team"
    env["METAFLOW_KUBERNETES_CONTAINER_IMAGE"] = "127.0.0.1:1/of-metaflow:1"
    told = json.loads(cli("stack", "show", "kubernetes", "--json", **env).out)
    assert told["default_image"] == "127.0.0.1:1/of-metaflow:1" and told["options"] == {}
    assert told["inherited"]["namespace"]["from"] == "METAFLOW_KUBERNETES_NAMESPACE"
    checked = cli("stack", "check", "kubernetes", **env).out
    assert "namespace is team, from METAFLOW_KUBERNETES_NAMESPACE" in checked
    plain = cli.document({"a": {"run": "true"}})
    cli.write("stoker.yaml", "stacks: {kubernetes: {runner_image: '127.0.0.1:1/s:1'}}")
    made = cli("plan", "--with", "kubernetes", "--manifest", plain, **env)
    assert '"namespace": "team"' in made.out and "of-metaflow:1" in made.out, made.err
    doc = cli.document({"a": {"run": "true", **image}})

    # a profile, the folder that is meant without METAFLOW_HOME, and files that are no good
    other = metaflow(cli, '{"METAFLOW_BATCH_JOB_QUEUE": "of-p"}', "config_p.json")
    assert "of-p" in cli("stack", "show", "batch", METAFLOW_PROFILE="p", **other).out
    cli.write(".metaflowconfig/config.json", '{"METAFLOW_BATCH_JOB_QUEUE": "at-home"}')
    assert "at-home" in cli("stack", "show", "batch", HOME=str(cli.folder)).out
    cli.write(".metaflow/config.json", '{"METAFLOW_BATCH_JOB_QUEUE": "of-project"}')
    assert "of-project" in cli("stack", "show", "batch", **other).out
    (cli.folder / ".metaflow/config.json").unlink()
    for bad in (metaflow(cli, "[1]"), {**env, "METAFLOW_PROFILE": "none"}):
        assert "queue" not in cli("stack", "show", "batch", **bad).out
        assert "✗ Metaflow's settings can't be read" in cli("stack", "check", "batch", **bad).out


def test_nothing_is_configured(cli: Cli) -> None:
    """Names all missing settings and what to write, in `plan`, which contacts nothing, and in
    `run`."""
    env = {"HOME": str(cli.folder), "STOKER_SHARE": str(cli.folder.parent / "share")}
    none = {"AWS_EC2_METADATA_DISABLED": "true"}
    doc = cli.document({"a": {"run": "true", "docker": {"parent_image": "127.0.0.1:1/i:1"}}})

    def told(stack: str) -> str:
        planned, ran = (cli(word, "--with", stack, doc, **env, **none) for word in ("plan", "run"))
        assert planned.code == 0 and "note: refused: " in planned.out, planned.out + planned.err
        why = planned.out.split("note: refused: ")[1].splitlines()[0]
        assert ran.code != 0 and why in ran.err, ran.err
        return why

    assert "set runner_image to it, or set carry: volume" in told("kubernetes")
    assert "set queue in @batch(…) or in the stack's options" in told("batch")
    own = {"carry_volume": "/opt/stoker"}
    cluster, queue = (
        {"backend": "kubernetes", **own},
        {"backend": "batch", **own, "options": {"queue": "q"}},
    )
    cli.write("stoker.yaml", json.dumps({"stacks": {"k": cluster, "b": queue}}))
    assert "no Kubernetes cluster is known: ~/.kube/config doesn't exist" in told("k")
    assert "set AWS_REGION, or region in ~/.aws/config" in told("b")
    checked = cli("stack", "check", "b", **env, **none)
    assert checked.code == 3 and checked.out.count("AWS_REGION") == 1, checked.out


KUBE = "backend: kubernetes, carry_volume: /opt/stoker"


@pytest.mark.parametrize(
    ("stack", "why"),
    [
        ("backend: kubernets", "'backend' must be docker, kubernetes, batch, slurm, ssh or local, not 'kubernets'; did you mean 'kubernetes'?"),
        (f"{KUBE}, stor: s3://b", "unknown key 'stor' in 'x'; did you mean 'store'?"),
        (f"{KUBE}, store: 's3:/b/p'", "did you mean 's3://b/p'?"),
        (f"{KUBE}, store: 'S3://b/p'", "did you mean 's3://b/p'?"),
        (f"{KUBE}, store: 's3://'", "'store' is s3://; it must be s3://BUCKET/PREFIX"),
        (f"{KUBE}, store: 'gs://b/p'", "it must be s3://BUCKET/PREFIX, the absolute path of a folder"),
        (f"{KUBE}, store: 's3://AKIA:hunter2@b/p'", "has credentials"),
        (f"{KUBE}, store: [", "not valid YAML"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong(cli: Cli, stack: str, why: str) -> None:
    cli.write("stoker.yaml", f"stacks:\n  x: {{{stack}}}\n")
    for words in (["list"], ["show", "x"], ["check", "x"], ["check", "x", "--json"]):
        told = cli("stack", *words)
        assert told.code == 2 and why in told.err and "hunter2" not in told.err + told.out, told.err
        assert len(told.err.splitlines()) == 1
        if words[-1] == "--json":
            assert json.loads(told.out)["error"]["class"] == "spec"


CONFIG = """\
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: hunter2}}]
"""


@pytest.mark.parametrize(
    ("config", "options", "why"),
    [
        (None, "kubeconfig: /nowhere/config", "the kubeconfig: can't open '/nowhere/config'"),
        (CONFIG, "context: hre", "kc has no context 'hre'; known: here"),
        ("clusters: [", "", "kc:2: not valid YAML"),
        (CONFIG, "", "`kubectl version` reaches it from here"),
        (CONFIG, "namespce: ml", "options: Kubernetes has no option 'namespce'; did you mean 'namespace'?"),
    ],
)  # fmt: skip
def test_a_cluster_that_is_wrong(cli: Cli, config: str | None, options: str, why: str) -> None:
    """Each problem is one line, without the stack's name."""
    folder = cli.folder.parent / "share"
    cli.write(
        "stoker.yaml", f"stacks:\n  x: {{{KUBE}, store: '{folder}', options: {{{options}}}}}\n"
    )
    env = {"HOME": str(cli.folder)}
    if config is not None:
        env["KUBECONFIG"] = str(cli.write("kc", config))
    told = cli("stack", "check", "x", **env)
    bad = [line for line in told.out.splitlines() if line.startswith("✗")]
    assert told.code == 3 and len(bad) == 1 and why in bad[0], told.out
    assert "its machines must have the same folder there" in told.out
    assert "hunter2" not in told.out + told.err and "stack 'x'" not in bad[0]
    found = json.loads(cli("stack", "check", "x", "--json", **env).out)
    assert [f["text"] for f in found["findings"] if not f["ok"]] == [bad[0][2:]]


def test_a_share_with_credentials(cli: Cli) -> None:
    told = cli("stack", "show", "kubernetes", STOKER_SHARE="s3://AKIA:hunter2@b/p")
    assert told.code == 2 and "STOKER_SHARE: the store's URL has credentials" in told.err
    assert "hunter2" not in told.err


ROOT = Path(__file__).resolve().parents[2]


def examples() -> list[str]:
    """Every stoker.yaml that the documents and the help show."""
    found = []
    for name in ("README.md", "docs/kubernetes.md", "docs/batch.md", "docs/slurm.md"):
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
        found += [text for text in blocks if "\nstacks:" in text]
    return found


def test_what_is_shown_works(cli: Cli) -> None:
    shown = [
        line for line in cli("stack", "--help").out.splitlines() if line.startswith("stacks: ")
    ]
    assert len(shown) == 4 and len(examples()) >= 3
    image = {"docker": {"parent_image": "127.0.0.1:1/i:1"}}
    doc = cli.document({"a": {"run": "true", **image}})
    plain = cli.document({"a": {"run": "true"}}, name="plain.json")
    for text in shown + examples():
        cli.write("stoker.yaml", text)
        stacks = json.loads(cli("stack", "list", "--json").out)
        own = [stack for stack in stacks if stack["file"] is not None]
        assert own, text
        for stack in own:
            if stack["backend"] in ("kubernetes", "batch"):
                made = cli("plan", "--with", stack["name"], "--manifest", doc)
                assert made.code == 0, text + made.err
            elif stack["backend"] == "slurm":
                made = cli("plan", "--with", stack["name"], "--manifest", plain)
                assert made.code == 0 and "#SBATCH" in made.out, text + made.err


def test_check_of_an_endpoint_that_fails(cli: Cli) -> None:
    """It doesn't take all retries of a run: each request is made at most twice."""
    asked: list[str] = []

    class Failing(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_error(503)

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "STOKER_SHARE": "s3://b/p",
        }  # fmt: skip
        told = cli("stack", "check", "batch", **env)
        server.shutdown()
    assert told.code == 3, told.out
    assert asked and max(Counter(asked).values()) <= 2, asked


def test_check_without_region_or_queue(cli: Cli) -> None:
    """An unknown region is reported once; a queue that steps name isn't missing in the stack."""
    write(cli, FILE.replace("queue: q", "cpu: 1"))
    none = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    none |= dict.fromkeys(["AWS_REGION", "AWS_DEFAULT_REGION", "METAFLOW_BATCH_JOB_QUEUE"], "")
    none["AWS_EC2_METADATA_DISABLED"] = "true"
    told = json.loads(cli("stack", "check", "prod", "--json", **none).out)
    bad = [finding["text"] for finding in told["findings"] if not finding["ok"]]
    assert len(bad) == 1 and "region" in bad[0], told
    assert {"ok": True, "text": "its options are known"} in told["findings"]
