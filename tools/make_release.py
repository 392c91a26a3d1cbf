"""Builds what is published: a wheel for x86-64 and one for aarch64, the sdist, an SBOM and SHA256SUMS.

    make_release.py DIR [--work FOLDER] [--arch ARCH]…      (`make release`)

The compiler is Zig's, from PyPI (tools/requirements-release.txt): it links for both machines and for glibc 2.28. The
libraries that are linked in are built by it from Debian's sources (`bootstrap.sh sources`). Same sources, same bytes
out, wherever FOLDER is: paths are mapped away and dates are SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import make_wheel

ROOT = make_wheel.ROOT
GLIBC = "2.28"
ARCHS = ("x86_64", "aarch64")
# Debian's source packages that are linked in → what each is, in SPDX's words.
LICENCES = {
    "sqlite3": "blessing",
    "libyaml": "MIT",
    "openssl": "Apache-2.0",
    "cmark-gfm": "BSD-2-Clause",
    "libevent": "BSD-3-Clause",
}
FLAGS = ["-O2", "-g0", "-fPIC", "-fno-sanitize=undefined", "-ffunction-sections", "-w"]
SQLITE = [
    "THREADSAFE=1",
    "SECURE_DELETE",
    "USE_URI",
    "OMIT_LOAD_EXTENSION",
    "ENABLE_COLUMN_METADATA",
    "ENABLE_DBSTAT_VTAB",
    "ENABLE_MATH_FUNCTIONS",
    "MAX_VARIABLE_NUMBER=250000",
]
# What of libcrypto Stoker doesn't call.
NO_CRYPTO = """aria async bf blake2 camellia cast cmp cms ct des dgram dsa dso ec2m engine filenames gost idea legacy
    md4 mdc2 module ocb ocsp rc2 rc4 rmd160 scrypt seed shared siphash siv sm2 sm3 sm4 sock srp srtp ssl-trace tests
    tls ts ui-console whirlpool"""
# What of libevent is linked in: the loop, buffers, evhttp.
LIBEVENT = """buffer bufferevent bufferevent_filter bufferevent_pair bufferevent_ratelim bufferevent_sock epoll evdns
    event event_tagging evmap evrpc evthread evutil evutil_rand evutil_time http listener log poll select signal
    strlcpy"""
ALL_MODES = ["-Dbuildtype=release", "-Dwerror_ours=false", "-Ddefault_library=static"]
PT_DYNAMIC, RPATH, RUNPATH = 2, 15, 29  # of ELF


@dataclass
class Source:
    """A source package of Debian's, unpacked."""

    name: str
    version: str
    folder: Path
    sha256: str  # of the .dsc, which names the digests of the rest


def call(*command: Any, cwd: Path | None = None, **env: str) -> str:
    """Runs a program; what it says is shown only if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **env}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout[-6000:]}\n{' '.join(words)[:300]} ended with {done.returncode}")
    return done.stdout


def fetch(work: Path) -> dict[str, Source]:
    """Every library's sources, unpacked below `work`. Downloads are kept in build/sources."""
    kept = ROOT / "build" / "sources"
    missing = [name for name in LICENCES if not list(kept.glob(f"{name}_*.dsc"))]
    if missing:
        call(ROOT / "tools" / "bootstrap.sh", "sources", kept, *missing)
    found = {}
    for name in LICENCES:
        (dsc,) = kept.glob(f"{name}_*.dsc")
        folder = work / "src" / name
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            call("dpkg-source", "--no-check", "-x", dsc, folder)
        version = re.search(r"^Version: (.+)$", dsc.read_text(), re.M)
        assert version is not None
        digest = hashlib.sha256(dsc.read_bytes()).hexdigest()
        found[name] = Source(name, version[1], folder, digest)
    return found


def zig() -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        sys.exit("no compiler: install tools/requirements-release.txt, or run `make release`")
    return Path(spec.origin).parent / "zig"


class Machine:
    """The compiler for one kind of machine, and what it has built."""

    def __init__(self, arch: str, work: Path) -> None:
        self.arch, self.work = arch, work / arch
        self.tools, self.lib, self.include = (
            self.work / part for part in ("bin", "lib", "include")
        )
        for folder in (self.tools, self.lib, self.include):
            folder.mkdir(parents=True, exist_ok=True)
        # Meson names sources by the way from its folder to them.
        prefixes = (work, ROOT, os.path.relpath(ROOT, self.work / "stoker"))
        map_away = " ".join(f'-ffile-prefix-map="{prefix}"=.' for prefix in prefixes)
        self.write_tool("cc", f"cc {map_away} -target {arch}-linux-gnu$glibc")
        musl = f"cc -target {arch}-linux-musl {map_away} -fno-sanitize=undefined -w"
        self.write_tool("musl-gcc", musl)
        for tool in ("ar", "ranlib"):
            self.write_tool(tool, tool)
        cache = str(work / "zig-cache")
        self.env = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "ZIG_GLOBAL_CACHE_DIR": cache,
            "ZIG_LOCAL_CACHE_DIR": cache,
            "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "315532800"),
        }

    def write_tool(self, name: str, words: str) -> None:
        path = self.tools / f"{self.arch}-{name}"
        # Meson lists the compiler's macros (-dM), where Zig hands the target on without reading it, and asks which
        # linker it has; older ones don't know Zig's, whose options are LLD's.
        lines = ["#!/bin/sh", f"glibc=.{GLIBC}", 'case " $* " in', '*" -dM "*) glibc= ;;']
        lines += ['*" -Wl,--version "*) echo "LLD, or as good"; exit ;;', "esac"]
        path.write_text("\n".join([*lines, f'exec "{zig()}" {words} "$@"\n']))
        path.chmod(0o755)

    def archive(self, name: str, sources: list[Path], *flags: str) -> None:
        """lib/libNAME.a of C files, whose objects lie in a folder of their own."""
        folder = self.work / f"obj-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        running = []
        for source in sources:  # few and short
            words = [
                self.tools / f"{self.arch}-cc",
                "-c",
                *FLAGS,
                *flags,
                source,
                "-o",
                f"{source.stem}.o",
            ]
            running.append(subprocess.Popen(words, cwd=folder, env={**os.environ, **self.env}))
            if len(running) >= (os.cpu_count() or 1):
                wait(running.pop(0), name)
        for each in running:
            wait(each, name)
        objects = sorted(path.name for path in folder.glob("*.o"))
        target = self.lib / f"lib{name}.a"
        target.unlink(missing_ok=True)
        call(self.tools / f"{self.arch}-ar", "rcsD", target, *objects, cwd=folder, **self.env)

    def describe(self, name: str, version: str, libs: str) -> None:
        """A file for pkg-config."""
        lines = [f"Name: {name}", "Description: for the release", f"Version: {version}"]
        lines += [f"Libs: -L{self.lib} {libs}", f"Cflags: -I{self.include}"]
        (self.lib / f"{name}.pc").write_text("\n".join(lines) + "\n")


def wait(child: subprocess.Popen[bytes], what: str) -> None:
    if child.wait():
        sys.exit(f"{what} doesn't compile")


def upstream(source: Source) -> str:
    """The library's own version: without Debian's revision."""
    return source.version.split(":")[-1].rsplit("-", 1)[0]


def build_sqlite(machine: Machine, source: Source) -> None:
    if not (source.folder / "sqlite3.c").exists():  # the one file that all of it is joined into
        call(
            "make",
            "-f",
            "main.mk",
            "TOP=.",
            "BCC=cc",
            "TCC=cc",
            "NAWK=awk",
            "OPTS=",
            "sqlite3.c",
            cwd=source.folder,
        )
    for name in ("sqlite3.h", "sqlite3ext.h"):
        shutil.copy(source.folder / name, machine.include)
    machine.archive(
        "sqlite3",
        [source.folder / "sqlite3.c"],
        "-DHAVE_USLEEP=1",
        *(f"-DSQLITE_{each}" for each in SQLITE),
    )
    machine.describe("sqlite3", upstream(source), "-lsqlite3")


def build_yaml(machine: Machine, source: Source) -> None:
    version = upstream(source)
    numbers = dict(zip(("MAJOR", "MINOR", "PATCH"), version.split(".")))
    flags = [f"-DYAML_VERSION_{part}={number}" for part, number in numbers.items()]
    shutil.copy(source.folder / "include" / "yaml.h", machine.include)
    own = sorted((source.folder / "src").glob("*.c"))
    machine.archive(
        "yaml", own, *flags, f'-DYAML_VERSION_STRING="{version}"', f"-I{machine.include}"
    )
    machine.describe("yaml-0.1", version, "-lyaml")


def build_cmark(machine: Machine, source: Source) -> None:
    """CMake would write three headers; the rest is plain C."""
    version = upstream(source)
    made = machine.work / "cmark"
    made.mkdir(exist_ok=True)
    config = (source.folder / "src" / "config.h.in").read_text()
    (made / "config.h").write_text(re.sub(r"#cmakedefine (\w+)", r"#define \1 1", config))
    text = (source.folder / "src" / "cmark-gfm_version.h.in").read_text()
    for part, number in zip(("MAJOR", "MINOR", "PATCH", "GFM"), re.findall(r"\d+", version)):
        text = text.replace(f"@PROJECT_VERSION_{part}@", number)
    (made / "cmark-gfm_version.h").write_text(text)
    for prefix, name in (
        ("CMARK_GFM", "cmark-gfm_export.h"),
        ("CMARK_GFM_EXTENSIONS", "cmark-gfm-extensions_export.h"),
    ):
        (made / name).write_text(f"#define {prefix}_EXPORT\n#define {prefix}_NO_EXPORT\n")
    folders = [made, source.folder / "src", source.folder / "extensions"]
    flags = ["-DCMARK_GFM_STATIC_DEFINE", *(f"-I{folder}" for folder in folders)]
    own = sorted(path for path in folders[1].glob("*.c") if path.name != "main.c")
    machine.archive("cmark-gfm", own, *flags)
    machine.archive("cmark-gfm-extensions", sorted(folders[2].glob("*.c")), *flags)
    for folder in folders:
        for path in folder.glob("cmark-gfm*.h"):
            shutil.copy(path, machine.include)
    machine.describe("libcmark-gfm", version, "-lcmark-gfm")


def build_openssl(machine: Machine, source: Source) -> None:
    """libcrypto only, in a folder beside the sources: the paths in it are then the same everywhere."""
    folder = machine.work / "openssl"
    folder.mkdir(exist_ok=True)
    arch = machine.arch
    tools = {name: f"{arch}-{name.lower()}" for name in ("CC", "AR", "RANLIB")}
    configure = os.path.relpath(source.folder / "Configure", folder)
    options = [f"no-{each}" for each in NO_CRYPTO.split()]
    where = ["--prefix=/usr", "--openssldir=/usr/lib/ssl"]
    call(
        "perl",
        configure,
        f"linux-{arch}",
        *where,
        *options,
        *FLAGS,
        cwd=folder,
        **machine.env,
        **tools,
    )
    call("make", "-s", "build_generated", cwd=folder, **machine.env)
    call("make", "-s", f"-j{os.cpu_count()}", "libcrypto.a", cwd=folder, **machine.env)
    shutil.copy(folder / "libcrypto.a", machine.lib)
    for include in (source.folder / "include" / "openssl", folder / "include" / "openssl"):
        shutil.copytree(
            include,
            machine.include / "openssl",
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("*.in"),
        )
    machine.describe("libcrypto", upstream(source), "-lcrypto")


def build_libevent(machine: Machine, source: Source) -> None:
    """Its configure looks for what the system has; the rest is plain C."""
    made = machine.work / "libevent"
    made.mkdir(exist_ok=True)
    options = ["shared", "openssl", "samples", "libevent-regress", "dependency-tracking"]
    call(
        os.path.relpath(source.folder / "configure", made),
        f"--host={machine.arch}-linux-gnu",
        *(f"--disable-{each}" for each in options),
        cwd=made,
        **machine.env,
        CC=f"{machine.arch}-cc",
        AR=f"{machine.arch}-ar",
        RANLIB=f"{machine.arch}-ranlib",
    )
    config = made / "include" / "event2" / "event-config.h"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(call("sed", "-f", source.folder / "make-event-config.sed", made / "config.h"))
    folders = [made, made / "include", source.folder / "include", source.folder]
    flags = ["-DHAVE_CONFIG_H", *(f"-I{folder}" for folder in folders)]
    own = [source.folder / f"{name}.c" for name in LIBEVENT.split()]
    machine.archive("event", own, *flags)
    for folder in folders[1:3]:
        shutil.copytree(folder / "event2", machine.include / "event2", dirs_exist_ok=True)
    machine.describe("libevent", upstream(source), "-levent")


def cross_file(machine: Machine) -> Path:
    """What Meson must know of the machine."""
    arch = machine.arch
    tools = {"c": "cc", "ar": "ar", "ranlib": "ranlib", "musl-gcc": "musl-gcc"}
    lines = ["[binaries]"]
    lines += [f"{name} = '{machine.tools}/{arch}-{tool}'" for name, tool in tools.items()]
    lines += [
        "pkgconfig = 'pkg-config'",
        "pkg-config = 'pkg-config'",
        "strip = 'true'",
        "[built-in options]",
    ]
    lines += [
        f"c_args = {[*FLAGS, f'-I{machine.include}']}",
        f"c_link_args = ['-s', '-pie', '-L{machine.lib}']",
    ]
    lines += ["[properties]", f"pkg_config_libdir = '{machine.lib}'", "needs_exe_wrapper = true"]
    lines += [
        "[host_machine]",
        "system = 'linux'",
        f"cpu_family = '{arch}'",
        f"cpu = '{arch}'",
        "endian = 'little'",
    ]
    path = machine.work / "cross.ini"
    path.write_text("\n".join(lines) + "\n")
    return path


def build_engine(machine: Machine) -> Path:
    """The engine for that machine, stripped."""
    for name in ("curl",):  # headers alone: the library is loaded when it is first needed
        found = next(
            iter(sorted(Path("/usr/include").glob(f"*/{name}"))), Path("/usr/include", name)
        )
        shutil.copytree(found, machine.include / name, dirs_exist_ok=True)
    folder = machine.work / "stoker"
    meson = "/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson"
    if not (folder / "build.ninja").exists():
        call(
            meson,
            "setup",
            folder,
            ROOT,
            "--cross-file",
            cross_file(machine),
            *ALL_MODES,
            f"-Dlibrary_dirs={machine.lib}",
            **machine.env,
        )
    call("ninja", "-C", folder, "src/cli/stoker", **machine.env)
    binary = machine.work / "stoker.elf"
    binary.write_bytes(with_rpath((folder / "src" / "cli" / "stoker").read_bytes()))
    binary.chmod(0o755)
    return binary


def with_rpath(data: bytes) -> bytes:
    """The program with RPATH for RUNPATH, which is all that Zig's linker makes: meson.build says why."""
    (programs,) = struct.unpack_from("<Q", data, 32)
    size, n = struct.unpack_from("<HH", data, 54)
    changed = bytearray(data)
    for k in range(n):
        kind, _, at, _, _, length = struct.unpack_from("<IIQQQQ", data, programs + k * size)
        for entry in range(at, at + length, 16) if kind == PT_DYNAMIC else ():
            if struct.unpack_from("<Q", data, entry)[0] == RUNPATH:
                struct.pack_into("<Q", changed, entry, RPATH)
    return bytes(changed)


def build_machine(arch: str, work: Path, sources: dict[str, Source]) -> Path:
    machine = Machine(arch, work)
    done = machine.work / "libraries.done"
    if not done.exists():
        build_sqlite(machine, sources["sqlite3"])
        build_yaml(machine, sources["libyaml"])
        build_cmark(machine, sources["cmark-gfm"])
        build_openssl(machine, sources["openssl"])
        build_libevent(machine, sources["libevent"])
        done.touch()
    return build_engine(machine)


def component(name: str, version: str, licence: str, purl: str, **more: Any) -> dict[str, Any]:
    licences = [{"license": {"id": licence}}]
    about = {"type": "library", "bom-ref": purl, "name": name, "version": version}
    return {**about, "purl": purl, "licenses": licences, **more}


def sbom(sources: dict[str, Source]) -> bytes:
    """CycloneDX 1.5: what is linked into the engine, and the compiler whose runtime parts are."""
    about = make_wheel.project()
    parts = []
    for source in sources.values():
        version = source.version.replace("~", "%7E").replace("+", "%2B").replace(":", "%3A")
        purl = f"pkg:deb/debian/{source.name}@{version}?arch=source"
        hashes = [{"alg": "SHA-256", "content": source.sha256}]
        files = [{"type": "file", "name": f"{source.name}_{source.version}.dsc", "hashes": hashes}]
        parts.append(
            component(source.name, source.version, LICENCES[source.name], purl, components=files)
        )
    version = importlib.metadata.version("ziglang")
    text = "compiler-rt in the engine; musl in stk-runner, the program that the engine puts into containers"
    parts.append(
        component("ziglang", version, "MIT", f"pkg:pypi/ziglang@{version}", description=text)
    )
    own = component(
        about["name"],
        about["version"],
        "Apache-2.0",
        f"pkg:pypi/{about['name']}@{about['version']}",
    )
    own["type"] = "application"
    refs = [part["bom-ref"] for part in parts]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": parts,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": refs}],
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def needed_glibc(binary: Path) -> tuple[int, ...]:
    """The newest version of glibc's symbols that the program asks for."""
    text = call("readelf", "-W", "-V", binary)
    found = {tuple(map(int, each.split("."))) for each in re.findall(r"GLIBC_([0-9.]+)", text)}
    return max(found)


def make_wheels(folder: Path, binaries: dict[str, Path], sources: dict[str, Source]) -> None:
    bill = sbom(sources)
    own = f"{make_wheel.project()['name']}-{make_wheel.project()['version']}"
    (folder / f"{own}.cdx.json").write_bytes(bill)
    texts = {
        name: (each.folder / "debian" / "copyright").read_bytes() for name, each in sources.items()
    }
    texts["ziglang"] = (zig().parent / "LICENSE").read_bytes()
    speaker = binaries.get(os.uname().machine) or ROOT / "build/src/cli/stoker"
    more = {f"{own}.dist-info/sboms/{own}.cdx.json": (bill, 0o644)}
    limit = tuple(map(int, GLIBC.split(".")))
    for arch, binary in binaries.items():
        if needed_glibc(binary) > limit:
            sys.exit(f"{binary} needs glibc {needed_glibc(binary)}, more than {GLIBC}")
        plain = make_wheel.write_wheel(folder, binary, f"linux_{arch}", texts, speaker, more)
        tag = make_wheel.audited_tag(plain)
        plain.unlink()
        path = make_wheel.write_wheel(folder, binary, tag, texts, speaker, more)
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--arch", action="append", choices=ARCHS)
    given = parser.parse_args()
    folder, work = given.folder.absolute(), given.work.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sources = fetch(work)
    binaries = {arch: build_machine(arch, work, sources) for arch in given.arch or ARCHS}
    make_wheels(folder, binaries, sources)
    make_wheel.build_sdist(str(folder))
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
