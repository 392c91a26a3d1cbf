"""Settings objects: grammar, validation, unknown names, and what they become in the spec."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from front_tools import PACKAGE  # noqa: F401 - puts the package on the path

from stoker import (
    CachePolicy,
    DockerSettings,
    ResourceSettings,
    SettingsError,
    StepRetryConfig,
    StokerWarning,
    pipeline,
    step,
)
from stoker._base.errors import unknown_settings
from stoker._definition.settings import (
    MEMORY_UNITS,
    TIME_UNITS,
    memory_bytes,
    settings_layer,
    time_seconds,
)


def test_units_are_those_of_the_engine() -> None:
    table = Path(__file__).resolve().parents[2] / "src" / "tbl" / "units.def"
    rows = re.findall(
        r'^X\((\w+), "(\w*)", (\d+)\)$', table.read_text(encoding="utf-8"), re.MULTILINE
    )
    units = {"true": {}, "false": {}}
    for is_time, word, amount in rows:
        units[is_time][word] = int(amount)
    assert units == {"true": TIME_UNITS, "false": MEMORY_UNITS}
    for word, ms in TIME_UNITS.items():
        assert time_seconds(f" 2.5 {word.upper()}") == 2.5 * ms / 1000
    for letter, power in MEMORY_UNITS.items():
        assert memory_bytes(f"2{letter}") == 2 * 1000**power
        assert memory_bytes(f"2 {letter.upper()}iB") == 2 * 1024**power
    for text in ("2 parsecs", "s", "2,5s", "", None, 5):
        assert time_seconds(text) is None


SIZES = [
    ("8GB", 8 * 10**9),
    ("8GiB", 8 << 30),
    ("8gb", 8 * 10**9),
    ("8 GiB", 8 << 30),
    ("1.5GB", 1_500_000_000),
    ("16Gi", 16 << 30),
    ("8G", 8 * 10**9),
    ("100B", 100),
    ("2KiB", 2048),
    ("3 mb", 3_000_000),
    ("1TiB", 1 << 40),
    ("1PB", 10**15),
    (4096, 4096),
]


@pytest.mark.parametrize("text,size", SIZES)
def test_memory(text, size):
    assert memory_bytes(text) == size
    spec, _ = ResourceSettings(memory=text).as_spec()
    assert spec == {"memory": size}


@pytest.mark.parametrize(
    "text", ["8", "GB", "8XB", "-1GB", "0GB", "1e3GB", "", "8 GB extra", None, 0, True, [1]]
)
def test_memory_refused(text):
    with pytest.raises(SettingsError, match="memory"):
        memory_bytes(text)


@pytest.mark.parametrize(
    "given,sentence",
    [
        ({"cpu_count": 0}, "cpu_count 0 must be a number above 0"),
        ({"cpu_count": float("nan")}, "cpu_count nan"),
        ({"cpu_count": "2"}, "cpu_count '2'"),
        ({"gpu_count": 0.5}, "gpu_count 0.5 must be a whole number"),
        ({"gpu_count": -1}, "gpu_count -1"),
        ({"gpu_count": True}, "gpu_count True"),
        ({"memory": "lots"}, "'lots' is not a memory size"),
        ({"gpu_cont": 1}, "unknown field 'gpu_cont'; did you mean 'gpu_count'?"),
        ({"gpus": 1}, "unknown field 'gpus'; did you mean 'gpu_count'?"),
        ({"mem": "1GB"}, "unknown field 'mem'; did you mean 'memory'?"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas 3 is above max_replicas 2"),
    ],
)
def test_resources_refused(given, sentence):
    with pytest.raises(SettingsError) as caught:
        ResourceSettings(**given)
    assert sentence in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        step(settings={"resources": given})(lambda: None)
    assert sentence in str(caught.value) and "settings['resources']" in str(caught.value)


def test_resources():
    made = ResourceSettings(
        cpu_count=2, gpu_count=1.0, memory="4GB", gpu_class="A100", min_replicas=1
    )
    assert made.as_spec() == (
        {"cpu_count": 2, "gpu_count": 1, "memory": 4 * 10**9, "gpu_class": "A100"},
        {"min_replicas": 1},
    )
    assert made.get_memory() == 4.0 and made.get_memory("MB") == 4000.0
    assert ResourceSettings().empty and ResourceSettings().get_memory() is None
    assert not ResourceSettings(gpu_count=0).empty
    with pytest.raises(AttributeError):
        made.cpu_count = 3


def test_an_unknown_field_is_a_warning_in_the_shim_and_a_key_is_refused():
    unknown_settings("warn")
    try:
        with pytest.warns(StokerWarning, match="unknown field 'gpus' is ignored"):
            assert ResourceSettings(gpus=2).empty
        with pytest.raises(SettingsError, match="key 'resource'; did you mean 'resources'"):
            settings_layer({"resource": {}}, "here")
    finally:
        unknown_settings("error")


def test_docker():
    made = DockerSettings(
        parent_image="x:1", requirements=["torch"], build_config={"dockerignore": "a"}
    )
    assert made.given() == {
        "parent_image": "x:1",
        "requirements": ["torch"],
        "build_config": {"dockerignore": "a"},
    }
    with pytest.raises(SettingsError, match="skip_build needs parent_image"):
        DockerSettings(skip_build=True)
    with pytest.raises(SettingsError, match="'conda' is neither"):
        DockerSettings(python_package_installer="conda")
    with pytest.raises(SettingsError, match="'parent_imagee'; did you mean 'parent_image'"):
        DockerSettings(parent_imagee="x")


@pytest.mark.parametrize(
    "bad", [{"max_retries": 0}, {"max_retries": 1.5}, {"delay": -1}, {"jitter": 2}, {"delay": "1"}]
)
def test_retry_refused(bad):
    with pytest.raises(SettingsError, match=next(iter(bad))):
        StepRetryConfig(**bad)


def test_retry_default_backoff_is_one():
    assert StepRetryConfig(max_retries=3, delay=2).as_spec() == {
        "max_retries": 3,
        "delay": 2,
        "backoff": 1,
        "jitter": 0,
    }


@pytest.mark.parametrize(
    "settings,sentence",
    [
        ({"resorces": {}}, "unknown settings key 'resorces'; did you mean 'resources'"),
        ({"slurm": {"partition": "gpu"}}, "settings={'step_operator.slurm': …}"),
        ({"orchestrator": {}, "orchestrator.kubernetes": {}}, "two keys for one component"),
        ({"step_operator:a": {}, "step_operator": {}}, "two keys for one component"),
        ({"resources": 3}, "must be a ResourceSettings or a mapping, not int"),
        ([1], "settings must be a mapping"),
    ],
)
def test_settings_refused(settings, sentence):
    with pytest.raises(ValueError) as caught:
        settings_layer(settings, "step 'x'")
    assert sentence in str(caught.value) and "step 'x'" in str(caught.value)


def test_settings_of_components():
    with pytest.warns(StokerWarning, match="'orchestrator.sagemaker'"):
        layer = settings_layer(
            {
                "orchestrator.kubernetes": {"node_selectors": {"a": "b"}},
                "step_operator.local_docker": {"run_args": {}},
                "orchestrator.sagemaker": {"instance_type": "ml"},
                "docker": None,
            },
            "step 'x'",
        )
    assert layer["backend"] == {
        "kubernetes": {"node_selectors": {"a": "b"}},
        "docker": {"run_args": {}},
    }
    assert layer["extra"] == {"settings": {"orchestrator.sagemaker": {"instance_type": "ml"}}}


def test_pod_settings_with_objects_inside():
    """ZenML's settings nest its own objects, and the Kubernetes client's: as the API spells them."""

    class Pods:
        def model_dump(self, exclude_unset):
            return {"tolerations": [Toleration()], "node_selectors": {"a": "b"}}

    class Toleration:
        attribute_map = {"key": "key", "toleration_seconds": "tolerationSeconds", "value": "value"}
        key, toleration_seconds, value = "x", 5, None

    class Orchestrator:
        def model_dump(self, exclude_unset):
            return {"pod_settings": Pods()}

    layer = settings_layer({"step_operator.kubernetes": Orchestrator()}, "x")
    assert layer["backend"]["kubernetes"]["pod_settings"] == {
        "tolerations": [{"key": "x", "tolerationSeconds": 5}],
        "node_selectors": {"a": "b"},
    }


def test_resources_of_a_pool_are_not_asked_for_silently():
    with pytest.warns(StokerWarning, match="'gpu': 2.*Stoker has no resource pools"):
        settings_layer({"resources": {"pool_resources": {"gpu": 2}}}, "x")


def test_objects_of_other_libraries_are_settings_too():
    class Foreign:
        def model_dump(self, exclude_unset):
            return {"gpu_count": 2}

    assert settings_layer({"resources": Foreign()}, "x") == {"resources": {"gpu_count": 2}}


@pytest.mark.parametrize(
    "options,sentence",
    [
        ({"enable_cash": True}, "unknown option 'enable_cash'; did you mean 'enable_cache'"),
        ({"enable_cache": "yes"}, "enable_cache 'yes' must be True or False"),
        ({"retry": 0}, "max_retries 0"),
        ({"retry": "twice"}, "retry must be a StepRetryConfig, not str"),
        ({"timeout": "soon"}, "timeout 'soon' is not a duration"),
        ({"timeout": -1}, "timeout -1"),
        ({"isolation": "thread"}, "isolation 'thread'"),
        ({"environment": {"A=B": "1"}}, "environment variable name 'A=B'"),
        ({"environment": {"A": []}}, "environment variable A must be text, not list"),
        ({"secrets": "one"}, "secrets must be a list of names"),
        ({"tags": "one"}, "tags must be a list"),
        ({"extra": 3}, "extra must be a mapping"),
        ({"on_failure": 3}, "on_failure must be a function or a source path"),
        ({"on_failure": "alert"}, "on_failure 'alert' is not a source path"),
        ({"cache_policy": "sometimes"}, "cache_policy 'sometimes' is unknown"),
    ],
)
def test_options_refused(options, sentence):
    for decorator, what in ((step, "step 'f'"), (pipeline, "pipeline 'f'")):

        def f():
            return 1

        with pytest.raises(SettingsError) as caught:
            decorator(**options)(f)
        assert sentence in str(caught.value)
        assert what in str(caught.value)


def test_execution_mode_refused():
    with pytest.raises(SettingsError, match="execution_mode 'slow' is unknown"):
        pipeline(name="p", execution_mode="slow")(lambda: None)


def test_options_without_effect_are_kept():
    @step(enable_step_logs=False)
    def f():
        return 1

    assert f.layer["extra"]["zenml"] == {"enable_step_logs": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(step_operator=False, enable_artifact_metadata=True, heartbeat_healthy_threshold=30)(
            lambda: 1
        )


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("docker", {"docker": {}}),
        ("local_docker", {"docker": {}}),
        ("local", "local"),
        ("kubernetes", {"kubernetes": {}}),
        ("gpu_pool", {"stack": "gpu_pool"}),
    ],
)
def test_step_operator_is_a_place(name, backend):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f = step(step_operator=name)(lambda: 1)
    assert f.layer["backend"] == backend
    assert "extra" not in f.layer
    inside = step(settings={"orchestrator.docker": {"shm_size": "1g"}})(lambda: 1)
    moved = inside.with_options(step_operator=name).layer["backend"]
    kept = {"docker": {"shm_size": "1g"}}
    assert moved == ("local" if name == "local" else {**backend, **kept})


def test_cache_policy():
    assert CachePolicy.no_cache().caches_nothing and not CachePolicy.default().caches_nothing
    with pytest.raises(SettingsError, match="'include_step_cod'; did you mean 'include_step_code'"):
        CachePolicy(include_step_cod=False)
