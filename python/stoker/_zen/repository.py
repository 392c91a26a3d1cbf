"""The folder ``.zen``, which marks the root of a program's repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar, Optional

from . import errors
from .artifacts import store_folder


class Repository:
    """What the client knows of the repository. One client serves all; ``Client(root)`` is another
    one, for a repository that is named."""

    _only: ClassVar[Any] = None
    _root: Optional[Path] = None

    def __new__(cls, root: Any = None) -> Any:
        """The client; with ``root`` a new one."""
        if root is not None:
            return super().__new__(cls)
        if cls.__dict__.get("_only") is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __init__(self, root: Any = None) -> None:
        if root is not None:
            self._root = self.find_repository(Path(root))

    @classmethod
    def _reset_instance(cls, client: Any = None) -> None:
        """Forget the client, or put another one in its place."""
        cls._only = client

    @staticmethod
    def initialize(root: Any = None) -> None:
        """Make a repository of a folder, by default of the working directory.

        Raises:
            InitializationException: it is one already.
        """
        folder = Path(root or os.getcwd())
        if Repository.is_repository_directory(folder):
            raise errors.__getattr__("InitializationException")(
                f"Found existing ZenML repository at path '{folder}'."
            )
        (folder / ".zen").mkdir(parents=True)
        (folder / ".zen" / "config.yaml").write_text("{}\n")

    @staticmethod
    def is_repository_directory(path: Any) -> bool:
        """Whether a folder is the root of a repository."""
        return os.path.isdir(os.path.join(path, ".zen"))

    @staticmethod
    def find_repository(path: Any = None, enable_warnings: bool = False) -> Optional[Path]:
        """The root of the repository in which the program runs, or None.

        Args:
            path: the root that it must be, else that of ``ZENML_REPOSITORY_PATH``.
        """
        given = path or os.environ.get("ZENML_REPOSITORY_PATH")
        here = Path(given or os.getcwd())
        for folder in (here,) if given else (here, *here.parents):
            if Repository.is_repository_directory(folder):
                return folder.resolve()
        return None

    @staticmethod
    def is_inside_repository(file_path: str) -> bool:
        """Whether a file is in the repository in which the program runs."""
        root = Repository.find_repository()
        return root is not None and root in Path(file_path).resolve().parents

    @property
    def root(self) -> Optional[Path]:
        """The repository's root, or None."""
        return self._root or self.find_repository()

    def activate_root(self, root: Any = None) -> None:
        """Use a repository; None: the one in which the program runs."""
        self._root = self.find_repository(None if root is None else Path(root))

    @property
    def config_directory(self) -> Path:
        """The repository's ``.zen``, else the folder of ZenML's configuration."""
        root = self.root
        return Path(store_folder() or os.getcwd()) if root is None else root / ".zen"

    @property
    def uses_local_configuration(self) -> bool:
        """Whether there is a repository."""
        return self.root is not None
