"""Calls functions right after a module's import, or at once if it is imported already."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List


class _Finder:
    """An import finder that takes the other finders' spec and wraps its loader, to act after the
    module's execution."""

    def __init__(self) -> None:
        self.calls: Dict[str, List[Callable[[Any], None]]] = {}
        self.asking = (
            ""  # the module that the other finders look for; one of them may call this finder again
        )

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the other finders' spec with a wrapped loader, for modules in ``calls``."""
        if name not in self.calls or name == self.asking:
            return None
        before, self.asking = self.asking, name
        try:
            spec = self._others(name, path, target)
        finally:
            self.asking = before
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._wrap(name, spec.loader)
        return spec

    def _others(self, name: str, path: Any, target: Any) -> Any:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                return spec
        return None

    def _wrap(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module  # the class's method applies again
            execute(module)
            for call in self.calls.pop(name, ()):
                call(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader with slots, or a built-in one
            pass


finder = _Finder()


def when_imported(name: str, call: Callable[[Any], None]) -> None:
    """Call ``call(module)`` once, now or after the module's import. The import raises its
    exceptions."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        call(module)
        return
    finder.calls.setdefault(name, []).append(call)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
