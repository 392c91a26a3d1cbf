"""Something to be done as soon as a module has been imported, by whomever; at once where it is there already."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List


class _Finder:
    """Finds nothing by itself: it takes the spec that the other finders have, and acts behind its execution."""

    def __init__(self) -> None:
        self.calls: Dict[str, List[Callable[[Any], None]]] = {}
        self.asking = (
            ""  # the module whose spec the others are asked for; one of them may ask this one again
        )

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The other finders' spec, its loader wrapped, of a module that is waited for."""
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
            del loader.exec_module  # the class's own again
            execute(module)
            for call in self.calls.pop(name, ()):
                call(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader with slots, or built in
            pass


finder = _Finder()


def when_imported(name: str, call: Callable[[Any], None]) -> None:
    """Have ``call(module)`` called once, now or behind the module's import. What it raises, the import raises."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        call(module)
        return
    finder.calls.setdefault(name, []).append(call)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
