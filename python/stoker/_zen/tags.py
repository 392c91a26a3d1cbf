"""Tags as objects, and what they are attached to.

A run's tags are the store's. Those of an artifact, a version, a model or a pipeline are a record
that adds to, or takes away from, what the object has by itself. An exclusive tag has one holder
among the runs of a pipeline, or the versions of an artifact: the latest that got it.
"""

from __future__ import annotations

import uuid
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Union

from .._base.binary import output_of
from . import records
from .enums import ColorVariants
from .errors import EntityExistsError
from .page import Page, page_of
from .responses import Response, found_by, moment


class TagResponse(Response):
    """A tag."""

    def __init__(self, name: str, record: Optional[records.Record] = None) -> None:
        body = {} if record is None else record.body
        self.name = name
        self.id = uuid.UUID(body["id"]) if "id" in body else records.id_of("tag", name)
        self.color = ColorVariants(body.get("color") or _color(name))
        self.exclusive = bool(body.get("exclusive"))
        self.created = moment(record.created_ms) if record is not None else None
        self.updated = moment(record.updated_ms) if record is not None else None

    @property
    def tagged_count(self) -> int:
        """How many objects have it."""
        return len(holders(self.name))


def _color(name: str) -> str:
    colors = [one.value for one in ColorVariants]
    return str(colors[sum(name.encode("utf-8", "surrogatepass")) % len(colors)])


def named(tags: Union[str, Any, Iterable[Any], None]) -> List[str]:
    """The names of one tag or of several, as texts or objects."""
    if tags is None:
        return []
    if isinstance(tags, str) or hasattr(tags, "name"):
        tags = [tags]
    return [str(getattr(one, "name", one)) for one in tags]


def _as_objects(names: Iterable[str]) -> List[TagResponse]:
    names = list(dict.fromkeys(names))
    if not names:
        return []
    known = {record.name: record for record in records.listed("tag")}
    return [TagResponse(name, known.get(name)) for name in names]


def of(kind: str, id: uuid.UUID, own: Sequence[str] = ()) -> List[TagResponse]:
    """The tags of an object; ``own``: those that it has by itself."""
    record = records.get("tagged", f"{kind}/{id}")
    body = {} if record is None else record.body
    gone = body.get("remove") or ()
    return _as_objects(name for name in [*own, *(body.get("add") or ())] if name not in gone)


def attach(kind: str, id: uuid.UUID, tags: Any) -> None:
    """Add tags to an object.

    Raises:
        ValueError: a tag is exclusive, and the object is neither a run nor a version of an artifact.
    """
    names = named(tags)
    if not names:
        return
    only = exclusive_among(names)
    if only and kind != "artifact_version":
        raise ValueError(
            f"tag '{only[0]}' is exclusive, so only a run or a version of an artifact can have it"
        )
    for name in only:
        _take_from_others(id, name)

    def add(body: Dict[str, Any]) -> None:
        body["add"] = list(dict.fromkeys([*(body.get("add") or ()), *names]))
        body["remove"] = [t for t in body.get("remove") or () if t not in names]

    records.change("tagged", f"{kind}/{id}", add)


def exclusive_among(names: Iterable[str]) -> List[str]:
    """Those of the names that are exclusive tags."""
    known = {r.name for r in records.listed("tag") if r.body.get("exclusive")}
    return [name for name in names if name in known]


def _take_from_others(id: uuid.UUID, name: str) -> None:
    """Take an exclusive tag from the other versions of an artifact."""
    from .artifacts import versions_of

    everything = versions_of()
    whose = next((one.name for one in everything if one.id == id), None)
    for one in everything:
        if one.name == whose and one.id != id and name in [t.name for t in one.tags]:
            detach("artifact_version", one.id, name)


def detach(kind: str, id: uuid.UUID, tags: Any) -> None:
    """Remove tags from an object; a missing one is no error."""

    def take(body: Dict[str, Any]) -> None:
        body["add"] = [t for t in body.get("add") or () if t not in named(tags)]
        body["remove"] = list(dict.fromkeys([*(body.get("remove") or ()), *named(tags)]))

    if named(tags):
        records.change("tagged", f"{kind}/{id}", take)


def forget(kind: str, id: uuid.UUID) -> None:
    """Drop the tags of an object that is removed."""
    records.remove("tagged", f"{kind}/{id}")


def tag_run(run: str, add: Any = None, remove: Any = None) -> None:
    """Change the tags of a run, which may be running."""
    words = [w for t in named(add) for w in ("--add", t)]
    words += [w for t in named(remove) for w in ("--remove", t)]
    if words:
        output_of(["tag", run, *words])
    begin_run(run, named(add))


def begin_run(run: str, given: Sequence[str]) -> None:
    """Take the exclusive ones of a run's tags from the other runs of its pipeline."""
    only = exclusive_among(given) if given else []
    if not only:
        return
    from .runs import run_of, runs

    pipeline = run_of(run).pipeline.name
    for other in runs():
        if other.native.id == run or other.pipeline.name != pipeline:
            continue
        gone = [t.name for t in other.tags if t.name in only]
        if gone:
            tag_run(other.native.id, None, gone)


class Holder(NamedTuple):
    """What has a tag: a run by the engine's id, else an object by its kind and id."""

    kind: str
    id: Any
    group: str  # within which an exclusive tag has one holder

    def change(self, add: Any, remove: Any) -> None:
        """Change its tags."""
        if self.kind == "pipeline_run":
            tag_run(self.id, add, remove)
        else:
            detach(self.kind, self.id, remove)
            attach(self.kind, self.id, add)


def holders(name: str) -> List[Holder]:
    """Everything that has a tag."""
    from .artifacts import versions_of
    from .runs import runs

    found = [
        Holder("pipeline_run", run.native.id, run.pipeline.name)
        for run in runs()
        if name in (run.native._body or {}).get("tags", ())
    ]
    for version in versions_of():
        if any(tag.name == name for tag in version.tags):
            found.append(Holder("artifact_version", version.id, version.name))
    for record in records.listed("tagged"):
        kind, _, id = record.name.partition("/")
        if kind != "artifact_version" and name in (record.body.get("add") or ()):
            found.append(Holder(kind, uuid.UUID(id), record.name))
    return found


def create(name: str, color: Any = None, exclusive: bool = False) -> TagResponse:
    """Make a tag; raises EntityExistsError, and ValueError for an unknown color."""
    color = ColorVariants(color or _color(name)).value
    record = records.create("tag", name, {"color": color, "exclusive": bool(exclusive)})
    return TagResponse(name, record)


def everything() -> List[TagResponse]:
    """All tags: those that were made, and those that anything has."""
    from .artifacts import rows
    from .runs import all_tags

    made = records.listed("tag")
    used = [t for r in records.listed("tagged") for t in r.body.get("add") or ()]
    of_outputs = [t for row in rows() for t in row.get("tags") or ()]
    return _as_objects([*(r.name for r in made), *used, *all_tags(), *of_outputs])


def get(name_or_id: Any) -> TagResponse:
    """A tag by name, id or prefix; raises KeyError."""
    found: TagResponse = found_by("tag", name_or_id, everything())
    return found


def update(name_or_id: Any, given: Mapping[str, Any]) -> TagResponse:
    """Change a tag's name, its color, or whether it is exclusive.

    Raises:
        ValueError: several runs of a pipeline, or several versions of an artifact, have a tag that
            should become exclusive, or something else has it.
        EntityExistsError: the new name is taken.
    """
    tag = get(name_or_id)
    if given.get("exclusive") and not tag.exclusive:
        _can_be_exclusive(tag.name)

    def paint(body: Dict[str, Any]) -> None:
        body["color"] = ColorVariants(given.get("color") or tag.color).value
        if given.get("exclusive") is not None:
            body["exclusive"] = bool(given["exclusive"])

    record = records.change("tag", tag.name, paint)
    name = given.get("name")
    if name in (None, tag.name):
        return TagResponse(tag.name, record)
    made = records.create("tag", str(name), dict(record.body))
    for holder in holders(tag.name):
        holder.change([name], [tag.name])
    records.remove("tag", tag.name)
    return TagResponse(str(name), made)


def _can_be_exclusive(name: str) -> None:
    found = holders(name)
    wrong = [one.kind for one in found if one.kind not in ("pipeline_run", "artifact_version")]
    groups = [(one.kind, one.group) for one in found]
    if wrong:
        raise ValueError(
            f"tag '{name}' can't be made exclusive: a {wrong[0].replace('_', ' ')} has it"
        )
    for kind, group in groups:
        if groups.count((kind, group)) > 1:
            what = "runs of pipeline" if kind == "pipeline_run" else "versions of artifact"
            raise ValueError(
                f"tag '{name}' can't be made exclusive: several {what} '{group}' have it"
            )


def delete(name_or_id: Any) -> None:
    """Remove a tag, also from what has it. Raises KeyError."""
    name = get(name_or_id).name
    for holder in holders(name):
        holder.change(None, [name])
    records.remove("tag", name)


def make(tags: Iterable[Any]) -> None:
    """Make the tags that don't exist yet.

    Raises:
        ValueError: a tag exists, and is not as exclusive as this one.
    """
    known = {record.name: record for record in records.listed("tag")}
    for tag in tags:
        name, wanted = str(getattr(tag, "name", tag)), getattr(tag, "exclusive", None)
        if name in known:
            exclusive = bool(known[name].body.get("exclusive"))
            if wanted is not None and bool(wanted) != exclusive:
                raise ValueError(
                    f"tag '{name}' exists and is {'' if exclusive else 'not '}exclusive; change it "
                    "with Client().update_tag"
                )
            continue
        if wanted and any(one.name == name for one in everything()):
            raise ValueError(f"tag '{name}' is in use and isn't exclusive; see Client().update_tag")
        try:
            create(name, getattr(tag, "color", None), bool(wanted))
        except EntityExistsError:
            pass  # another process was faster


def list_tags(given: Mapping[str, Any]) -> Page[TagResponse]:
    """The page of tags that the arguments ask for."""
    asked = {
        "id": lambda t: t.id,
        "name": lambda t: t.name,
        "color": lambda t: t.color,
        "exclusive": lambda t: t.exclusive,
        "created": lambda t: t.created,
        "updated": lambda t: t.updated,
        "resource_type": lambda t: [one.kind for one in holders(t.name)],
    }
    return page_of("tags", everything(), given, asked)
