"""Docker settings: the image of a step, and how it is built."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

from .._base.errors import SettingsError
from .checked import Checked, dataclass


@dataclass(frozen=True)
class DockerBuildOptions(Checked):
    """Options of an image build.

    Example::

        DockerBuildConfig(build_options=DockerBuildOptions(nocache=True))
    """

    pull: bool = False
    rm: bool = False
    no_cache: bool = False
    shm_size: Optional[int] = None
    labels: Optional[Dict[str, Any]] = None
    build_args: Optional[Dict[str, Any]] = None
    cache_from: Optional[List[str]] = None


@dataclass(frozen=True)
class DockerBuildConfig(Checked):
    """How an image is built.

    Example::

        DockerSettings(build_config=DockerBuildConfig(dockerignore=".dockerignore"))
    """

    build_options: Union[DockerBuildOptions, Dict[str, Any], None] = None
    dockerignore: Optional[str] = None


@dataclass(frozen=True)
class DockerSettings(Checked):
    """The image of a step on container backends; without effect on a local run.

    Example::

        DockerSettings(parent_image="pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime")
    """

    parent_image: Optional[str] = None
    image_tag: Optional[str] = None
    dockerfile: Optional[str] = None
    build_context_root: Optional[str] = None
    parent_image_build_config: Union[DockerBuildConfig, Dict[str, Any], None] = None
    skip_build: bool = False
    prevent_build_reuse: bool = False
    target_repository: Optional[str] = None
    python_package_installer: str = "uv"
    python_package_installer_cache_mount: Optional[str] = None
    python_package_installer_args: Optional[Dict[str, Any]] = None
    disable_automatic_requirements_detection: bool = True
    replicate_local_python_environment: Any = None
    pyproject_path: Optional[str] = None
    pyproject_export_command: Any = None
    requirements: Union[str, Sequence[str], None] = None
    required_integrations: Sequence[str] = ()
    install_stack_requirements: bool = True
    install_deployment_requirements: bool = True
    local_project_install_command: Optional[str] = None
    apt_packages: Sequence[str] = ()
    environment: Optional[Dict[str, Any]] = None
    runtime_environment: Optional[Dict[str, Any]] = None
    user: Optional[str] = None
    build_config: Union[DockerBuildConfig, Dict[str, Any], None] = None
    allow_including_files_in_images: bool = True
    allow_download_from_code_repository: bool = True
    allow_download_from_artifact_store: bool = True
    build_options: Any = None
    dockerignore: Optional[str] = None
    copy_files: Optional[bool] = None
    copy_global_config: Optional[bool] = None
    source_files: Any = None
    required_hub_plugins: Optional[Sequence[str]] = None

    def __post_init__(self) -> None:
        if self.skip_build and not self.parent_image:
            raise SettingsError(
                "DockerSettings: skip_build needs parent_image, the image to use unchanged; "
                "set it, or remove skip_build"
            )
        installer = str(
            getattr(self.python_package_installer, "value", self.python_package_installer)
        )
        if installer not in ("pip", "uv"):
            raise SettingsError(
                f"DockerSettings: python_package_installer {installer!r} is neither 'pip' nor 'uv'"
            )
