#!/usr/bin/env bash
# Installs what the build needs, and only what is missing.
#   bootstrap.sh debian LIST…           Debian packages named in the list files
#   bootstrap.sh venv DIR               a virtual environment with `import stoker` and bin/stoker
#   bootstrap.sh unpack DIR PACKAGE…    files of Debian packages, unpacked below DIR; nothing is
# installed or started
#   bootstrap.sh unpack_of SUITE DIR PACKAGE…   the same from another release of Debian, by the
# archive that this machine uses
#   bootstrap.sh sources DIR PACKAGE…   Debian's source packages, from the archive that this machine
# uses
#   bootstrap.sh python DIR LIST…       PyPI packages into that environment
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

say() { printf 'bootstrap: %s\n' "$*" >&2; }
die() { say "$*"; exit 3; }

debian() {
    local wanted missing=()
    mapfile -t wanted < <(sed 's/#.*//' "$@" | xargs -r -n1)
    [ ${#wanted[@]} -gt 0 ] || die "these lists name no package: $*"
    if ! command -v dpkg-query >/dev/null; then
        say "this isn't Debian or Ubuntu: install the equivalents of these packages: ${wanted[*]}"
        return 0
    fi
    for package in "${wanted[@]}"; do
        dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing Debian packages: ${missing[*]}; install them as root, then run make again"
        sudo=(sudo)
    fi
    say "installing from Debian: ${missing[*]}"
    "${sudo[@]}" apt-get update -q >&2
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o APT::Keep-Downloaded-Packages=false "${missing[@]}" >&2
}

unpack() {
    local dir=$1 tmp
    shift
    command -v dpkg-deb >/dev/null && command -v apt-get >/dev/null || die "this isn't Debian or
    Ubuntu: can't unpack $*"
    mkdir -p "$dir"
    tmp=$(mktemp -d)
    (cd "$tmp" && apt-get download -q "$@" >/dev/null 2>&1) || { rm -rf "$tmp"; die "can't download $*"; }
    for deb in "$tmp"/*.deb; do dpkg-deb -x "$deb" "$dir"; done
    rm -rf "$tmp"
}

unpack_of() {
    local suite=$1 dir=$2 key=/usr/share/keyrings/debian-archive-keyring.gpg tmp site options
    shift 2
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/*$') ||
        die "this machine uses no archive of Debian: can't get $* of $suite"
    tmp=$(mktemp -d)
    mkdir -p "$dir" "$tmp/lists/partial" "$tmp/archives/partial" "$tmp/debs"
    echo "deb [signed-by=$key] $site $suite main" >"$tmp/sources.list"
    options=(-q -o "Dir::Etc::sourcelist=$tmp/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$tmp/lists"
        -o "Dir::Cache=$tmp" -o APT::Sandbox::User= -o Acquire::Languages=none)
    (cd "$tmp/debs" && apt-get "${options[@]}" update && apt-get "${options[@]}" download "$@") >/dev/null 2>&1 ||
        { rm -rf "$tmp"; die "can't download $* of $suite"; }
    for deb in "$tmp"/debs/*.deb; do dpkg-deb -x "$deb" "$dir"; done
    rm -rf "$tmp"
}

# The newest version that the archive really has: a snapshot's index may name newer ones.
sources() {
    local dir=$1 tmp options key=/usr/share/keyrings/debian-archive-keyring.gpg package version
    shift
    mkdir -p "$dir"
    tmp=$(mktemp -d)
    mkdir -p "$tmp/lists/partial" "$tmp/archives/partial"
    apt-get indextargets --format "deb-src [signed-by=$key] \$(SITE) \$(RELEASE) main" 'Created-By: Packages' 2>/dev/null |
        grep '/debian\(-security\)\?/* ' | sort -u >"$tmp/sources.list" || true
    [ -s "$tmp/sources.list" ] || { rm -rf "$tmp"; die "this machine uses no archive of Debian: no sources of $*"; }
    options=(-q -o "Dir::Etc::sourcelist=$tmp/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$tmp/lists"
        -o "Dir::Cache=$tmp" -o APT::Sandbox::User= -o Acquire::Languages=none)
    apt-get "${options[@]}" update >/dev/null 2>&1 || { rm -rf "$tmp"; die "can't read the archive's list of sources"; }
    for package in "$@"; do
        for version in $(apt-cache "${options[@]}" showsrc "$package" | sed -n 's/^Version: //p' | sort -rV); do
            if (cd "$dir" && apt-get "${options[@]}" source --download-only "$package=$version") >/dev/null 2>&1; then
                continue 2
            fi
            rm -f "$dir/${package}_${version#*:}".dsc
        done
        rm -rf "$tmp"
        die "can't download the source of $package"
    done
    rm -rf "$tmp"
}

venv() {
    local dir=$1 python=${PYTHON:-python3} site
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
        die "$python is older than 3.9; choose a newer one: make PYTHON=/usr/bin/python3.11"
    [ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
    site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$root/python" >"$site/stoker.pth"
    ln -sfn "$root/build/src/cli/stoker" "$dir/bin/stoker"
}

python() {
    local dir=$1 args=()
    shift
    for list in "$@"; do args+=(-r "$list"); done
    "$dir/bin/python" -m pip install -q --disable-pip-version-check "${args[@]}"
}

case ${1-} in
debian | unpack | unpack_of | sources | venv | python) "$@" ;;
*) die "usage: bootstrap.sh debian LIST… | unpack DIR PACKAGE… | sources DIR PACKAGE… | venv DIR | python DIR LIST…" ;;
esac
