"""Stand-ins for the container programs of clusters, which no package has here: they take the documented command lines of
apptainer, enroot and srun with pyxis, refuse others, and give the command a root of its own, in which only the image's
folders and the mounts are. The image's files are this machine's /usr and /etc; /in-image has its name.
"""

from __future__ import annotations

from pathlib import Path

BOX = """#!/bin/sh
# box IMAGE SOURCE:TARGET… -- COMMAND…: keeps the process, as the real ones do
exec unshare -m sh -c '
set -e
image=$1; shift
mount --make-rprivate /
root=HERE/root
mkdir -p "$root"
mount -t tmpfs box "$root"
for name in usr etc proc dev sys; do mkdir "$root/$name"; mount --rbind "/$name" "$root/$name"; done
for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done
mkdir -m 1777 "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root${1#*:}"; mount --rbind "${1%%:*}" "$root${1#*:}"; shift
done
shift
echo "$image" >"$root/in-image"
exec chroot "$root" "$@"
' box "$@"
"""

APPTAINER = """#!/bin/sh
[ "$1" = exec ] || exit 255
shift
mounts=
while :; do
    case $1 in
    --pwd) shift 2 ;;
    --nv | --rocm) export BOX_GPU="$1"; shift ;;
    --bind) mounts="$mounts $2"; shift 2 ;;
    -*) echo "apptainer: unknown flag: $1" >&2; exit 255 ;;
    *) break ;;
    esac
done
case $1 in docker://*) ;; *) echo "apptainer: $1 isn't there" >&2; exit 255 ;; esac
image=${1#docker://}; shift
exec HERE/box "$image" $mounts -- "$@"
"""

SRUN = """#!/bin/sh
case " $* " in
*" --help "*) /usr/bin/srun --help; echo "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH"; exit ;;
*" --container-image="*) ;;
*) exec /usr/bin/srun "$@" ;;
esac
flags= mounts= image=
while :; do
    case $1 in
    --container-image=*) image=${1#*=} ;;
    --container-mounts=*) mounts=$(echo "${1#*=}" | tr , ' ') ;;
    --no-container-mount-home | --container-workdir=*) ;;
    --container*) echo "srun: unrecognized option '$1'" >&2; exit 1 ;;
    -*) flags="$flags $1" ;;
    *) break ;;
    esac
    shift
done
exec /usr/bin/srun $flags HERE/box "$image" $mounts -- "$@"
"""

ENROOT = """#!/bin/sh
command=$1; shift
case $command in
import)
    [ "$1" = -o ] || exit 1
    case $3 in docker://*) echo "${3#docker://}" >"$2" ;; *) exit 1 ;; esac ;;
create)
    [ "$1" = -n ] || exit 1
    mkdir -p HERE/boxes && cp "$3" "HERE/boxes/$2" ;;
start)
    mounts=
    while :; do
        case $1 in
        --rw) shift ;;
        --mount) mounts="$mounts $2"; shift 2 ;;
        -*) exit 1 ;;
        *) break ;;
        esac
    done
    image=$(cat "HERE/boxes/$1") || exit 1
    shift
    exec HERE/box "$image" $mounts -- "$@" ;;
remove)
    [ "$1" = -f ] && rm "HERE/boxes/$2" ;;
*) exit 1 ;;
esac
"""

PROGRAMS = {
    "apptainer": {"apptainer": APPTAINER},
    "singularity": {"singularity": APPTAINER},
    "pyxis": {"srun": SRUN},
    "enroot": {"enroot": ENROOT},
}


def install(folder: Path, *kinds: str) -> None:
    """Puts the programs of these kinds into a folder, which belongs on PATH."""
    folder.mkdir()
    texts = {"box": BOX}
    for kind in kinds:
        texts |= PROGRAMS[kind]
    for name, text in texts.items():
        (folder / name).write_text(text.replace("HERE", str(folder)))
        (folder / name).chmod(0o755)
