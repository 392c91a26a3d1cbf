"""Precedence and merging: decorators, configure, with_options, run configurations."""

from __future__ import annotations

import json

import pytest
from front_tools import subset

from stoker import (
    CachePolicy,
    DockerSettings,
    ExecutionMode,
    Model,
    ResourceSettings,
    SettingsError,
    StepInterfaceError,
    StepRetryConfig,
    StokerWarning,
    pipeline,
    step,
)
from stoker._definition.layers import merge


def resources(**fields):
    return {"resources": ResourceSettings(**fields)}


@step
def first(n: int = 1) -> int:
    return n


@step(
    settings=resources(cpu_count=8), enable_cache=True, secrets=["own"], environment={"A": "step"}
)
def second(x, lr: float = 0.1) -> int:
    return 2


@pipeline(
    settings={
        **resources(memory="32GB", cpu_count=1),
        "docker": DockerSettings(parent_image="base"),
    },
    enable_cache=False,
    secrets=["shared"],
    environment={"A": "pipeline", "B": "pipeline"},
    retry=StepRetryConfig(max_retries=2, jitter=0.5),
    tags=["t"],
    extra={"k": 1},
    execution_mode=ExecutionMode.FAIL_FAST,
    model=Model(name="m", version="2"),
)
def both(lr: float = 0.5):
    second(first())


def effective(spec, name):
    """What the engine gets by merging the pipeline's level into the step's."""
    keys = ("resources", "retry", "cache", "environment", "docker", "secrets", "timeout")
    top = {k: spec[k] for k in keys if k in spec}
    own = {k: spec["steps"][name][k] for k in keys if k in spec["steps"][name]}
    merged = merge(
        {k: v for k, v in top.items() if k != "secrets"},
        {k: v for k, v in own.items() if k != "secrets"},
    )
    merged["secrets"] = own.get("secrets", top.get("secrets"))
    return merged


def test_step_over_pipeline_per_key():
    spec = both.spec()
    assert effective(spec, "second")["resources"] == {"cpu_count": 8, "memory": 32 * 10**9}
    assert effective(spec, "first")["resources"] == {"cpu_count": 1, "memory": 32 * 10**9}
    assert effective(spec, "second")["cache"] == {"enabled": True}
    assert effective(spec, "first")["cache"] == {"enabled": False}
    assert effective(spec, "second")["secrets"] == ["shared", "own"]
    assert effective(spec, "first")["secrets"] == ["shared"]
    assert effective(spec, "second")["environment"] == {"A": "step", "B": "pipeline"}
    subset(spec, {"tags": ["t"], "mode": "fail_fast", "docker": {"parent_image": "base"}})
    assert spec["extra"] == {"k": 1, "model": {"name": "m", "version": "2"}}


def test_none_does_not_count():
    made = second.with_options(
        settings={"resources": ResourceSettings(cpu_count=None, gpu_count=1)}, retry=None
    )
    assert made.layer["resources"] == {"cpu_count": 8, "gpu_count": 1}


def test_run_configuration_lies_between_decorators(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(
        json.dumps(
            {
                "run_name": "nightly",
                "settings": {"resources": {"cpu_count": 3, "gpu_count": 1}},
                "timeout": "10m",
                "steps": {
                    "second": {
                        "settings": {"resources": {"gpu_count": 2}},
                        "parameters": {"lr": 0.7},
                    },
                    "first": {"enable_cache": True},
                },
            }
        )
    )
    made = both.with_options(config_path=str(path))
    spec = made.spec()
    assert effective(spec, "second")["resources"] == {
        "cpu_count": 8,
        "memory": 32 * 10**9,
        "gpu_count": 2,
    }
    assert effective(spec, "first")["resources"] == {
        "cpu_count": 3,
        "memory": 32 * 10**9,
        "gpu_count": 1,
    }
    assert effective(spec, "first")["cache"] == {"enabled": True}
    assert spec["timeout"] == "10m"
    assert spec["steps"]["second"]["inputs"]["lr"] == {"value": 0.7}
    assert made.compile().run_name == "nightly"
    assert "timeout" not in both.spec()
    # Arguments of with_options win over the file.
    over = both.with_options(
        config_path=str(path),
        run_name="mine",
        timeout=5,
        step_configurations={"second": {"settings": {"resources": {"gpu_count": 4}}}},
    )
    assert over.compile().run_name == "mine"
    assert effective(over.spec(), "second")["resources"]["gpu_count"] == 4
    assert over.spec()["steps"]["second"]["inputs"]["lr"] == {"value": 0.7}
    assert over.spec()["timeout"] == 5


def test_run_level_cache_switch_beats_every_step():
    off = both.with_options(enable_cache=False).spec()
    assert effective(off, "second")["cache"] == {"enabled": False}
    on = both.with_options(enable_cache=True).spec()
    assert effective(on, "first")["cache"] == {"enabled": True}


def test_parameters_in_one_place():
    given = both.with_options(step_configurations={"second": {"parameters": {"x": 3}}})
    with pytest.raises(
        RuntimeError, match="step 'second' conflict with parameter passed in runtime: x: 3"
    ):
        given.spec()

    @pipeline
    def passes(lr: float = 0.5):
        second(1, lr=0.2)

    same = passes.with_options(step_configurations={"second": {"parameters": {"lr": 0.2}}})
    assert same.spec()["steps"]["second"]["inputs"]["lr"] == {"value": 0.2}
    other = passes.with_options(step_configurations={"second": {"parameters": {"lr": 0.3}}})
    with pytest.raises(RuntimeError, match=r"lr: 0\.3"):
        other.spec()
    with pytest.raises(StepInterfaceError, match="'second' has no parameter 'lrr'"):
        passes.with_options(step_configurations={"second": {"parameters": {"lrr": 1}}}).spec()


def test_pipeline_parameters_in_one_place(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"parameters": {"lr": 0.9}}')
    made = both.with_options(config_path=str(path))
    assert made.spec()["parameters"]["lr"]["default"] == 0.9
    assert made.spec(0.9)["parameters"]["lr"]["default"] == 0.9
    with pytest.raises(RuntimeError, match="'lr' of pipeline 'both' conflicts"):
        made.spec(0.1)
    path.write_text('{"parameters": {"lrr": 0.9}}')
    with pytest.raises(ValueError, match="no parameter 'lrr'; did you mean 'lr'"):
        both.with_options(config_path=str(path)).spec()


def test_unknown_step_in_run_configuration_is_a_warning():
    with pytest.warns(StokerWarning, match="step 'third' cannot be applied"):
        both.with_options(step_configurations={"third": {"enable_cache": True}}).spec()


@pytest.mark.parametrize(
    "text,sentence",
    [
        ("[]", "its top level must be a mapping"),
        ("{", "run configuration"),
        ('{"stepz": {}}', "unknown option 'stepz'; did you mean 'steps'"),
        (
            '{"steps": {"a": {"parametrs": {}}}}',
            "step 'a': unknown option 'parametrs'; did you mean 'parameters'",
        ),
        ('{"steps": {"a": 3}}', "step 'a' must be a mapping, not int"),
        ('{"schedule": {"cron_expression": "* * * * *"}}', "a schedule can't be kept"),
    ],
)
def test_bad_run_configuration(tmp_path, text, sentence):
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        both.with_options(config_path=str(path))
    assert sentence in str(caught.value) and str(path) in str(caught.value)
    with pytest.raises(SettingsError, match=r"absent\.json"):
        both.with_options(config_path=str(tmp_path / "absent.json"))


def test_configuration_inside_of_the_body_wins():
    @pipeline
    def body():
        second.with_options(settings=resources(cpu_count=2))(1)
        second(2)

    steps = body.spec()["steps"]
    assert steps["second"]["resources"] == {"cpu_count": 2}
    assert steps["second_2"]["resources"] == {"cpu_count": 8}


def failed(exception):
    print(exception)


def succeeded():
    print("ok")


def test_hooks_of_the_pipeline_are_defaults():
    @pipeline(on_failure=failed, on_success=succeeded)
    def body():
        first()
        second.with_options(on_failure="package.hooks.alert")(1)

    compiled = body.compile()
    steps = compiled.spec["steps"]
    here = {
        "on_failure": {"python": f"{__name__}:failed"},
        "on_success": {"python": f"{__name__}:succeeded"},
    }
    assert steps["first"]["hooks"] == here
    assert steps["second"]["hooks"] == {**here, "on_failure": {"python": "package.hooks:alert"}}
    assert compiled.registry["first"].hooks == {"on_failure": failed, "on_success": succeeded}
    assert compiled.registry["second"].hooks == {"on_success": succeeded}


def test_retry_is_not_merged_per_key():
    made = both.with_options(step_configurations={"second": {"retry": {"max_retries": 5}}}).spec()
    assert effective(made, "second")["retry"] == {
        "max_retries": 5,
        "delay": 0,
        "backoff": 1,
        "jitter": 0,
    }
    assert effective(made, "first")["retry"]["jitter"] == 0.5


def test_cache_policies():
    def cache_of(policy, **options):
        @pipeline(name="p")
        def body():
            second.with_options(cache_policy=policy, **options)(first(), lr=0.3)

        made = body.spec()["steps"]["second"]
        return made["cache"], made["code"]

    cache, code = cache_of(
        CachePolicy(expires_after=60, ignored_inputs=["x"], file_dependencies=["a.csv"])
    )
    assert cache == {"enabled": True, "expires": 60, "ignore_inputs": ["x"], "files": ["a.csv"]}
    assert cache_of("no_cache")[0]["enabled"] is False
    assert cache_of(CachePolicy(include_step_parameters=False))[0]["ignore_inputs"] == ["lr"]
    hidden = CachePolicy(include_artifact_values=False, include_artifact_ids=False)
    assert cache_of(hidden)[0]["ignore_inputs"] == ["x"]
    _, without = cache_of(CachePolicy(include_step_code=False))
    assert list(without) == ["function"] and without["function"] != code["function"]
    salts = {cache_of(CachePolicy(cache_func=lambda v=v: v))[0]["salt"] for v in (1, 2)}
    assert len(salts) == 2
    _, with_source = cache_of(CachePolicy(source_dependencies=[succeeded]))
    assert any(part.startswith("succeeded: ") for part in with_source)
    with pytest.raises(StepInterfaceError, match=r"'no\.such', which can't be imported"):
        cache_of(CachePolicy(source_dependencies=["no.such"]))
