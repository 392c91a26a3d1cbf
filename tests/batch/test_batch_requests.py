"""Requests to AWS are valid by the model of Batch in botocore, by which boto3 checks requests."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
from batch_tools import Drive, Moto

EVERYTHING = {
    "queue": "q",
    "cpu": "2.5",
    "memory": "8000",
    "iam_role": "arn:aws:iam::1:role/a",
    "execution_role": "arn:aws:iam::1:role/b",
    "shared_memory": 64,
    "max_swap": 100,
    "swappiness": 60,
    "use_tmpfs": True,
    "tmpfs_tempdir": True,
    "tmpfs_size": 100,
    "tmpfs_path": "/fast",
    "host_volumes": ["/data", "/a:/b"],
    "efs_volumes": ["fs-1:/work"],
    "log_driver": "awslogs",
    "log_options": {"awslogs-group": "mine"},
    "aws_batch_tags": {"team": "ml"},
    "privileged": True,
    "user": "1000",
    "init_process": True,
    "ulimits": {"memlock": -1},
    "secrets": {"T": "arn:aws:ssm:eu-west-1:1:parameter/t"},
    "share_identifier": "ml",
    "priority": 5,
    "executable": "/opt/python",
    "efa": 2,
}
FARGATE = {
    "queue": "q",
    "platform": "fargate",
    "execution_role": "arn:aws:iam::1:role/b",
    "ephemeral_storage": 30,
    "arch": "arm64",
    "assign_public_ip": False,
    "cpu": 0.25,
    "memory": 600,
}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "q"}, {}),
        (EVERYTHING, {"timeout_ms": 60000, "env": ["A=b"]}),
        ({**EVERYTHING, "gpu": 1}, {"nodes": 4}),
        ({**EVERYTHING, "trainium": 16}, {"nodes": 1}),
        (FARGATE, {}),
    ],
    ids=["plain", "everything", "nodes", "trainium", "fargate"],
)
def test_aws_takes_it(moto: Moto, drive: Callable[..., Drive], options: Any, words: Any) -> None:
    from botocore.session import get_session
    from botocore.validate import ParamValidator

    model = get_session().get_service_model("batch")
    d = drive(moto.env, {})
    d.send("manifest", id=1, options=options, argv=["/stoker/bin/stoker", "agent"], **words)
    d.send("stop", id=99)
    documents = [json.loads(d.wait(lambda r: True)["manifest"]) for _ in range(2)]
    for document, operation in zip(documents, ("RegisterJobDefinition", "SubmitJob")):
        shape = model.operation_model(operation).input_shape
        report = ParamValidator().validate(document, shape)
        assert not report.has_errors(), report.generate_report()
    definition, submit = documents
    assert submit["jobDefinition"] == definition["jobDefinitionName"]


def test_the_table_is_the_manual(moto: Moto) -> None:
    """docs/batch.md has every supported option of the table, and the table has all of Metaflow's
    options."""
    import re

    from batch_tools import ROOT

    table = (ROOT / "src/tbl/batch_options.def").read_text()
    rows = re.findall(r"^X\((\w+), \w+, (\w+),", table, re.MULTILINE)
    manual = (ROOT / "docs/batch.md").read_text()
    named = {name for name, how in rows if how != "ELSEWHERE"}
    assert {name for name in named if f"`{name}`" not in manual and f"`{name}:" not in manual} <= {
        "vcpus"
    }
    metaflow = (
        "cpu gpu memory image queue iam_role execution_role shared_memory max_swap swappiness inferentia "
        "trainium efa host_volumes efs_volumes use_tmpfs aws_batch_tags tmpfs_tempdir tmpfs_size tmpfs_path "
        "ephemeral_storage log_driver log_options executable privileged"
    )
    assert set(metaflow.split()) <= {name for name, how in rows if how != "REFUSED"}
