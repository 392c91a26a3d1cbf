"""Writing artifacts: bytes straight from memory, hashed by chunks while they are written.

The digest is the artifact identity of docs/contracts.md §2: SHA-256 over the SHA-256 of 16 MiB chunks.
Large files are summed by ``stoker sum``, beside the writing: it sums two chunks at once on each core, which
is almost twice as quick as hashlib. Otherwise a few threads share the chunks; each writes its chunk and
hashes it while it is still in the cache. Both release the interpreter lock.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, List, Optional, Sequence, Tuple

CHUNK = 16 << 20
HASH_FROM = 1 << 20  # smaller files are hashed by the engine: not worth importing hashlib here
_MAX_THREADS = 8
_HELPER_FROM = 64 << 20  # below, starting a program takes longer than it saves
_PIECE = 4 << 20  # is written, then given back where nobody needs it any more


def write_parts(
    path: str, parts: Sequence[Any], always_hash: bool = False, spend: int = 0
) -> Tuple[int, str]:
    """Write buffers one after the other into a new file.

    Args:
        parts: objects with a contiguous buffer.
        always_hash: give a digest for small files too.
        spend: address of the last part's buffer where nobody needs that any more (see :mod:`._spend`):
            its content is lost.

    Returns:
        Size in bytes, and the artifact digest ("" where the file is below 1 MiB and not asked for).

    Raises:
        OSError: the file exists, or the disk is full.
    """
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    size = sum(view.nbytes for view in views)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        if size < HASH_FROM and not always_hash:
            for view in views:
                _write_all(fd, view, None)
            return size, ""
        chunks = _chunks(views, size)
        helper = _start_helper(fd, size) if size >= _HELPER_FROM else None
        if helper is None:
            return size, _hash_chunks(chunks, fd)
        spender = None
        if spend:
            from . import _spend

            spender = _spend.spender(spend, size - views[-1].nbytes)
        return size, _write_beside(helper, fd, chunks, spender) or _hash_file(fd, size)
    finally:
        os.close(fd)


def _write_all(fd: int, view: memoryview, offset: Optional[int]) -> None:
    done = 0
    while done < view.nbytes:
        rest = view[done:]
        done += os.write(fd, rest) if offset is None else os.pwrite(fd, rest, offset + done)


def _chunks(views: List[memoryview], size: int) -> List[Tuple[int, List[memoryview]]]:
    """Cut the parts at multiples of CHUNK: (offset, pieces) for each chunk of the file."""
    chunks = []
    i_part, skip = 0, 0
    for offset in range(0, size, CHUNK):
        left = min(CHUNK, size - offset)
        pieces = []
        while left:
            piece = views[i_part][skip : skip + left]
            pieces.append(piece)
            left -= piece.nbytes
            skip += piece.nbytes
            if skip == views[i_part].nbytes:
                i_part, skip = i_part + 1, 0
        chunks.append((offset, pieces))
    return chunks


def _start_helper(fd: int, size: int) -> Any:
    """``stoker sum`` for this file, or None where the engine isn't at hand (inside of an image)."""
    try:
        import subprocess

        from .. import _binary, _errors
    except ImportError:
        return None
    try:
        return subprocess.Popen(
            [_binary.find(), "sum", "--fd", str(fd), "--size", str(size)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(fd,),
        )
    except (OSError, _errors.EngineError):
        return None


def _write_beside(
    helper: Any, fd: int, chunks: Sequence[Tuple[int, List[memoryview]]], spender: Any = None
) -> str:
    """Write the chunks, telling the helper of each; its digest, or "" where it came to grief.

    One thread writes: the kernel lets only one into a file.
    """
    with helper:  # where writing fails, it ends as well: nothing more is told
        listens = True
        for offset, pieces in chunks:
            for piece in pieces:
                for begin in range(0, piece.nbytes, _PIECE):
                    _write_all(fd, piece[begin : begin + _PIECE], offset + begin)
                    if spender is not None:
                        spender.up_to(offset + min(begin + _PIECE, piece.nbytes))
                offset += piece.nbytes
            try:
                listens = listens and helper.stdin.write(b".") == 1
            except OSError:
                listens = False
        helper.stdin.close()
        digest: str = helper.stdout.read().decode("ascii", "replace").strip()
    return digest if len(digest) == 64 else ""


def _hash_file(fd: int, size: int) -> str:
    """The digest of what is written."""
    import mmap

    with mmap.mmap(fd, size, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
        chunks = _chunks([view], size)
        try:
            return _hash_chunks(chunks, None)
        finally:
            for _, pieces in chunks:
                for piece in pieces:
                    piece.release()


def _hash_chunks(chunks: Sequence[Tuple[int, List[memoryview]]], fd: Optional[int]) -> str:
    """The digest, by a few threads, which write their chunks where ``fd`` is given."""
    import hashlib
    import threading

    digests = [b""] * len(chunks)
    todo = iter(range(len(chunks)))
    lock = threading.Lock()
    errors: List[BaseException] = []

    def work() -> None:
        while not errors:
            with lock:
                i_chunk = next(todo, -1)
            if i_chunk < 0:
                return
            try:
                offset, pieces = chunks[i_chunk]
                state = hashlib.sha256()
                for piece in pieces:
                    if fd is not None:
                        _write_all(fd, piece, offset)
                        offset += piece.nbytes
                    state.update(piece)
                digests[i_chunk] = state.digest()
            except BaseException as exc:
                errors.append(exc)

    n_threads = min(_MAX_THREADS, len(os.sched_getaffinity(0)), len(chunks))
    helpers = [threading.Thread(target=work, daemon=True) for _ in range(n_threads - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    if not chunks:
        digests = [hashlib.sha256(b"").digest()]
    return hashlib.sha256(b"".join(digests)).hexdigest()


def copy_file(source: str, path: str) -> Tuple[int, str]:
    """Copy a file as :func:`write_parts` does, its content mapped; returns size and digest."""
    size = os.stat(source).st_size
    if size < HASH_FROM:
        with open(source, "rb") as stream:
            return write_parts(path, [stream.read()])
    import mmap

    with open(source, "rb") as stream:
        mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)
    with mapped, memoryview(mapped) as view:
        return write_parts(path, [view])


def tree_digest(files: Iterable[Tuple[str, int, str]]) -> str:
    """Digest of a directory from (relative path, size, digest) of its files."""
    import hashlib

    listed = sorted(files, key=lambda one: os.fsencode(one[0]))
    text = b"stoker-tree-1\n" + b"".join(
        b"%s %d %s\n" % (digest.encode(), size, os.fsencode(name)) for name, size, digest in listed
    )
    state = hashlib.sha256()
    for offset in range(0, len(text), CHUNK):
        state.update(hashlib.sha256(text[offset : offset + CHUNK]).digest())
    return state.hexdigest()


def map_private(path: str) -> memoryview:
    """The file's bytes, mapped private and writable: changes stay in this process."""
    import mmap

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return memoryview(bytearray())
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY))
    finally:
        os.close(fd)
