"""Schedules as files: a timer and a service of systemd for the user, and a line for crontab."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import time
from typing import Any, Dict, List, Mapping, Optional

from . import _RECORD, FOLDER, DeployError

_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HOUR, _DAY, _HALF_A_YEAR = 3600, 86400, 180 * 86400
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))


def fields_of(cron: str) -> List[str]:
    """The five fields of a cron expression: a sixth, which can only be ``*``, is left out; ``?`` is
    ``*``.

    Raises:
        DeployError: it isn't one that cron and systemd both understand.
    """
    fields = ["*" if one == "?" else one for one in cron.split()]
    if len(fields) not in (5, 6):
        raise DeployError(f"cron is {cron!r}; it has five fields: minute hour day month weekday")
    if len(fields) == 6 and cron.split()[5] != "*":
        raise DeployError(
            f"cron is {cron!r}; it has five fields, minute hour day month weekday, without seconds; a "
            "sixth, the year, can only be *"
        )
    for text, (name, low, high) in zip(fields, _FIELDS):
        for part in text.split(","):
            if not _is_part(name, part, low, high):
                raise DeployError(
                    f"cron is {cron!r}; its {name} {part!r} is none of *, N, N-M, */S, "
                    f"N-M/S with numbers from {low} to {high}"
                )
    return fields[:5]


def _is_part(name: str, part: str, low: int, high: int) -> bool:
    span, slash, step = part.partition("/")
    if slash and not _number(step, (), 0):
        return False
    if span == "*":
        return True
    names = {"month": _MONTHS, "weekday": _DAYS}.get(name, ())
    numbers = [_number(one, names, low) for one in span.split("-")]
    right = len(numbers) <= 2 and all(one is not None and low <= one <= high for one in numbers)
    return right and (len(numbers) == 1 or int(numbers[0] or 0) <= int(numbers[1] or 0))


def _number(text: str, names: Any, low: int) -> Optional[int]:
    known = [one.lower() for one in names]
    if text.lower() in known:
        return known.index(text.lower()) + (low if len(known) == len(_MONTHS) else 0)
    return int(text) if text.isascii() and text.isdigit() else None


def calendar_of(cron: str, timezone: Optional[str] = None) -> List[str]:
    """The cron expression as ``OnCalendar=`` of systemd; two where cron means "day or weekday"."""
    minute, hour, day, month, weekday = fields_of(cron)
    clock = f"{_numbers('hour', hour)}:{_numbers('minute', minute)}:00"
    months = _numbers("month", month)
    tail = f" {timezone}" if timezone else ""
    days = "" if weekday == "*" else f"{_days(weekday)} "
    dates = f"*-{months}-{_numbers('day', day)} {clock}{tail}"
    if "*" in (day[0], weekday[0]):  # cron takes both
        return [f"{days}{dates}"]
    return [dates, f"{days}*-{months}-* {clock}{tail}"]


def _values(name: str, text: str) -> List[int]:
    low, high = next((low, high) for known, low, high in _FIELDS if known == name)
    names = {"month": _MONTHS, "weekday": _DAYS}.get(name, ())
    found = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, last = low, high - (name == "weekday")
        if span != "*":
            ends = [_number(one, names, low) for one in span.split("-")]
            first = int(ends[0] or 0)
            last = int(ends[-1] or 0) if len(ends) == 2 or not step else last
        found |= set(range(first, last + 1, int(step or 1)))
    return sorted(found)


def _numbers(name: str, text: str) -> str:
    if text == "*":
        return text
    values = _values(name, text)
    first, last = values[0], values[-1]
    if len(values) > 2 and values == list(range(first, last + 1)):
        return f"{first:02d}..{last:02d}"
    return ",".join(f"{one:02d}" for one in values)


def _days(text: str) -> str:
    return ",".join(dict.fromkeys(_DAYS[one % 7] for one in _values("weekday", text)))


def times_of(
    cron: Optional[str],
    every: Optional[float] = None,
    start: Optional[float] = None,
    end: Optional[float] = None,
    once: Optional[float] = None,
) -> Dict[str, Any]:
    """A schedule's fields for its record: a cron expression, or each ``every`` seconds from
    ``start``, or ``once``; times are seconds since 1970.

    What a cron expression can't say, :func:`why_not` decides when a run would start.

    Raises:
        DeployError: cron and systemd can't keep it.
    """
    found: Dict[str, Any] = {"cron": cron, "timezone": None, "start": start, "end": end}
    if cron is not None:
        fields_of(cron)
    elif once is not None:
        at = time.localtime(once)
        found["cron"] = f"{at.tm_min} {at.tm_hour} {at.tm_mday} {at.tm_mon} *"
        found.update(start=once, end=once + _HALF_A_YEAR)  # next year it is another's day
    elif every is not None and start is not None:
        seconds = int(every)
        if seconds < 60 or seconds % 60 or seconds != every:
            raise DeployError(
                f"an interval of {every:g} s: cron and systemd start something at whole minutes; "
                "take a multiple of 60 s"
            )
        by_hours = seconds % _HOUR == 0
        step = math.gcd(seconds, _DAY if by_hours else _HOUR)
        at = time.localtime(start)
        hours = sorted({(at.tm_hour + n * step // _HOUR) % 24 for n in range(_DAY // step)})
        minutes = sorted({(at.tm_min + n * step // 60) % 60 for n in range(_HOUR // step)})
        clock = (
            f"{at.tm_min} {','.join(map(str, hours))}"
            if by_hours
            else f"{','.join(map(str, minutes))} *"
        )
        found["cron"] = f"{clock} * * *"
        if step != seconds:
            found.update(step=step, every=seconds)
    return found


def why_not(schedule: Optional[Mapping[str, Any]], now: float) -> Optional[str]:
    """Why a run doesn't start at this time, although cron or systemd asks for one; None: it does."""
    if schedule is None:
        return "it has no schedule"
    start, end = schedule.get("start"), schedule.get("end")
    if start is not None and now < start - start % 60:
        return "its time begins later"
    if end is not None and now > end:
        return "its time has ended"
    step = schedule.get("step")
    if step and start is not None and round((now - start) / step) % (schedule["every"] // step):
        return "it is between two of its times"
    return None


# ---------------------------------------------------------------------------- files


def unit_folder() -> str:
    """Where systemd looks for the user's own units."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(config, "systemd", "user")


def _unit_paths(name: str) -> Dict[str, str]:
    return {
        kind: os.path.join(unit_folder(), f"stoker-{name}.{kind}") for kind in ("timer", "service")
    }


def _command(record: Mapping[str, Any]) -> List[str]:
    return [record["python"], "-m", "stoker._deployed", "run", record["name"]]


def _variables(record: Mapping[str, Any]) -> Dict[str, str]:
    kept = {key: record["env"][key] for key in ("PYTHONPATH", "STOKER_BIN") if key in record["env"]}
    return {"STOKER_STORE": _store(record["folder"]), **kept}


def _store(folder: str) -> str:
    return os.path.dirname(os.path.dirname(folder))


def _others(folder: str) -> Optional[str]:
    """The folder of another store's deployment whose units have this one's name, or None."""
    name = os.path.basename(folder)
    try:
        with open(_unit_paths(name)["service"], encoding="utf-8") as file:
            found = re.search(r'^Environment="STOKER_STORE=(.*)"$', file.read(), re.MULTILINE)
    except OSError:
        return None
    if found is None:
        return None
    store = re.sub(r'\\(["\\])', r"\1", found[1]).replace("%%", "%")
    other = os.path.join(store, FOLDER, name)
    same = os.path.realpath(other) == os.path.realpath(folder)
    return None if same or not os.path.exists(os.path.join(other, _RECORD)) else other


def refuse_others(folder: str) -> None:
    """Nothing, if the units of this name are free or those of the deployment in this folder.

    Raises:
        DeployError: they are another store's.
    """
    other = _others(folder)
    if other is not None:
        raise DeployError(
            f"'{os.path.basename(folder)}' has a timer already, for {other}: deploy it by another "
            "name, or delete that one"
        )


def _mark(folder: str) -> str:
    return f"# stoker: {folder}"


def _in_crontab(folder: str) -> bool:
    import subprocess

    if shutil.which("crontab") is None:
        return False
    done = subprocess.run(
        ["crontab", "-l"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return _mark(folder) in done.stdout.splitlines()


def _without(folder: str) -> str:
    """The command that prints crontab's lines without those of a deployment."""
    first, last = (
        re.sub(r"[][.*^$\\,]", r"\\\g<0>", one)
        for one in (_mark(folder), f" -m stoker._deployed run {os.path.basename(folder)} >>")
    )
    lines = rf"\,^{first}$,,\,{last},d"
    return f"crontab -l | sed {shlex.quote(lines)}"


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text).replace("%", "%%")
    return f'"{escaped}"'


def write(record: Mapping[str, Any]) -> List[str]:
    """Write a schedule's files; returns what the user has to know, or to do.

    Raises:
        DeployError: another store has a timer of this name.
    """
    refuse_others(record["folder"])
    schedule = record["schedule"]
    calendar = [f"OnCalendar={one}" for one in calendar_of(schedule["cron"], schedule["timezone"])]
    lines = {
        "timer": [
            "[Unit]",
            f"Description=Stoker: times of {record['name']}",
            "[Timer]",
            *calendar,
            "AccuracySec=1s",
            *(["Persistent=true"] if schedule.get("catchup") else []),
            "[Install]",
            "WantedBy=timers.target",
        ],
        "service": [
            "[Unit]",
            f"Description=Stoker: starts a run of {record['name']}",
            "[Service]",
            "Type=oneshot",
            "KillMode=process",  # the run goes on
            f"WorkingDirectory={record['folder'].replace('%', '%%')}",
            *(f"Environment={_quoted(f'{k}={v}')}" for k, v in _variables(record).items()),
            f"ExecStart={' '.join(_quoted(one.replace('$', '$$')) for one in _command(record))}",
        ],
    }
    paths = _unit_paths(record["name"])
    os.makedirs(unit_folder(), exist_ok=True)
    for kind, text in lines.items():
        with open(paths[kind], "w", encoding="utf-8") as file:
            file.write("\n".join(text) + "\n")
    cron = os.path.join(record["folder"], "cron")
    with open(cron, "w", encoding="utf-8") as file:
        file.write(_crontab(record))
    known = _in_crontab(record["folder"])
    if _systemctl("daemon-reload") and _systemctl(
        "enable", "--now", os.path.basename(paths["timer"])
    ):
        return [
            f"systemd starts it: {', '.join(record['calendar'])}; without a login only after "
            "`loginctl enable-linger`",
            *(_leave_crontab(record["folder"]) if known else []),
        ]
    before = f"({_without(record['folder'])})" if known else "crontab -l"
    return [
        f"nothing starts it yet, because systemd of this user can't be reached. Its files are {paths['timer']} and "
        f".service: `systemctl --user enable --now {os.path.basename(paths['timer'])}`; or let cron do it: "
        f"`({before}; cat {shlex.quote(cron)}) | crontab -`"
    ]


def _crontab(record: Mapping[str, Any]) -> str:
    schedule = record["schedule"]
    words = [*(f"{key}={value}" for key, value in _variables(record).items()), *_command(record)]
    command = " ".join(["env", *map(shlex.quote, words)]).replace("%", r"\%")
    log = shlex.quote(os.path.join(record["folder"], "log")).replace("%", r"\%")
    zone = f"CRON_TZ={schedule['timezone']}\n" if schedule["timezone"] else ""
    return f"{_mark(record['folder'])}\n{zone}{' '.join(fields_of(schedule['cron']))} {command} >>{log} 2>&1\n"


def remove(folder: str) -> List[str]:
    """Stop the schedule of a deployment and remove its files; returns what the user has to do."""
    paths = _unit_paths(os.path.basename(folder))
    if _others(folder) is None:
        if os.path.exists(paths["timer"]):
            _systemctl("disable", "--now", os.path.basename(paths["timer"]))
        for path in paths.values():
            if os.path.exists(path):
                os.remove(path)
        _systemctl("daemon-reload")
    return _leave_crontab(folder) if _in_crontab(folder) else []


def _leave_crontab(folder: str) -> List[str]:
    return [f"its line is in crontab: `{_without(folder)} | crontab -` removes it"]


def _systemctl(*words: str) -> bool:
    import subprocess

    if shutil.which("systemctl") is None:
        return False
    done = subprocess.run(
        ["systemctl", "--user", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode == 0
