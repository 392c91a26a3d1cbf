"""HTTP/1.1 over asyncio streams: keep-alive, chunked bodies both ways; knows no Kubernetes."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Optional
from urllib.parse import parse_qsl, unquote, urlsplit

MAX_HEAD = 64 * 1024
REASONS = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content"}


@dataclasses.dataclass
class Request:
    """One request. ``query`` has the last value of each key, ``headers`` have lower-case names."""

    method: str
    target: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    peer: str


@dataclasses.dataclass
class Response:
    """An answer: ``body`` at once, or ``stream`` in chunks until it ends or the client leaves."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    stream: Optional[AsyncIterator[bytes]] = None
    cut: Optional[str] = None  # 'before': no answer at all; 'half': closes after half of the body
    delay_s: float = 0.0


Handler = Callable[[Request], Awaitable[Response]]


class TooLarge(Exception):
    """The body exceeds the limit."""


def common_name(certificate: Any) -> str:
    """Return the common name of a client's certificate, or '' without one."""
    for part in (certificate or {}).get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


class Server:
    """Listens on one port. ``stop`` cuts every connection, ``start`` uses the same port again."""

    def __init__(
        self, handler: Handler, host: str, port: int, tls: Optional[ssl.SSLContext]
    ) -> None:
        self.handler = handler
        self.host = host
        self.port = port
        self.tls = tls
        self.max_body = 3 * 1024 * 1024
        self._server: Optional[asyncio.AbstractServer] = None
        self._open: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, self.host, self.port, ssl=self.tls, limit=MAX_HEAD, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and close the open ones."""
        if self._server:
            self._server.close()
            self._server = None
        while self._open:  # a task that is just ending its own wait may miss the first cancel
            for task in list(self._open):
                task.cancel()
            await asyncio.wait(list(self._open), timeout=0.2)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._open.add(task)
        peer = writer.get_extra_info("peername") or ("", 0)
        certificate = common_name(writer.get_extra_info("peercert"))
        try:
            while await self._one(reader, writer, str(peer[0]), certificate):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        except (asyncio.LimitOverrunError, ValueError):
            writer.write(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        finally:
            self._open.discard(task)
            writer.close()

    async def _one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: str,
        certificate: str,
    ) -> bool:
        """Serve one request. Return False where the connection ends with it."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return False
        lines = head.split("\r\n")
        method, target, protocol = lines[0].split(" ")
        headers: dict[str, str] = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        headers.pop("x-client-certificate", None)
        if certificate:
            headers["x-client-certificate"] = certificate
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        keep = protocol == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        try:
            body = await self._body(reader, headers)
        except TooLarge:
            limit = self.max_body
            text = (
                '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":'
                f'"Request entity too large: limit is {limit}","reason":"RequestEntityTooLarge",'
                '"code":413}'
            )
            await self._answer(writer, Response(413, text.encode()), False)
            return False
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        request = Request(method, target, unquote(parts.path), query, headers, body, peer)
        response = await self.handler(request)
        return await self._answer(writer, response, keep) and keep

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts: list[bytes] = []
            while True:
                size = int((await reader.readline()).split(b";")[0], 16)
                chunk = await reader.readexactly(size)
                await reader.readexactly(2)
                if not size:
                    return b"".join(parts)
                parts.append(chunk)
                if sum(map(len, parts)) > self.max_body:
                    raise TooLarge
        size = int(headers.get("content-length", "0"))
        if size > self.max_body:
            left = size
            while left > 0:  # read and discard it, or the client sees a reset instead of the answer
                part = await reader.read(min(left, 1 << 16))
                if not part:
                    break
                left -= len(part)
            raise TooLarge
        return await reader.readexactly(size) if size else b""

    async def _answer(self, writer: asyncio.StreamWriter, r: Response, keep: bool) -> bool:
        if r.delay_s:
            await asyncio.sleep(r.delay_s)
        if r.cut == "before":
            writer.transport.abort()
            return False
        lines = [f"HTTP/1.1 {r.status} {REASONS.get(r.status, 'Status')}"]
        if r.content_type and r.status != 204:
            lines.append(f"Content-Type: {r.content_type}")
        lines += [f"{k}: {v}" for k, v in r.headers.items()]
        if not keep:
            lines.append("Connection: close")
        if r.stream is not None:
            return await self._stream(writer, r, lines)
        if r.status != 204:
            lines.append(f"Content-Length: {len(r.body)}")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if r.cut == "half":
            writer.write(head + r.body[: len(r.body) // 2])
            await writer.drain()
            writer.close()
            return False
        writer.write(head + r.body)
        await writer.drain()
        return True

    async def _stream(self, writer: asyncio.StreamWriter, r: Response, lines: list[str]) -> bool:
        lines.append("Transfer-Encoding: chunked")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        await writer.drain()
        stream = r.stream
        assert stream is not None
        try:
            async for chunk in stream:
                if chunk:
                    writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    await writer.drain()
                if writer.is_closing():
                    return False
            if r.cut == "half":
                writer.transport.abort()
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            closing = getattr(stream, "aclose", None)
            if closing:
                await closing()
        return True
