"""The bytes of one blob of a registry, as a stream.

crane fetches them: login, proxies and certificates follow one set of rules, and the sha256 is checked at the
end of the blob. crane asks for no Range, so a fetch that broke begins again, and a server that ignores Range
changes nothing.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import select
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, cast

from scripts import command
from scripts.errors import CommandTimeout, RegistryError
from scripts.registry import crane
from scripts.registry.reference import Reference

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STALL_SECONDS = 60.0
MINIMUM_RATE = 1_000_000
"""Bytes a second; a registry that is slower as a whole is given up."""
CHUNK = 1 << 18
PIPE = 1 << 20
OCI, DOCKER = "application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."
PACKING = {
    f"{OCI}v1.tar": "",
    f"{OCI}v1.tar+gzip": "gzip",
    f"{OCI}v1.tar+zstd": "zstd",
    f"{DOCKER}diff.tar": "",
    f"{DOCKER}diff.tar.gzip": "gzip",
}
"""From a layer's media type (OCI image specification, "Image Layer Filesystem Changeset") to its packing."""
FOREIGN = (f"{OCI}nondistributable.", f"{DOCKER}foreign.")
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError)
"""What reading from `unpacked` raises when the bytes are not what the media type says."""


class Blob(io.RawIOBase):
    """A stream that counts its bytes and does not wait for ever.

    Args:
        file: a pipe or a file.
        name: what it is, for errors.
        timeout: seconds without a byte.
        size: the expected size in bytes: all waiting together takes at most `timeout` + size / MINIMUM_RATE.
    """

    def __init__(self, file: IO[bytes], name: str, timeout: float, size: int) -> None:
        self._file, self.name, self._timeout = file, name, timeout
        self._patience = timeout + size / MINIMUM_RATE
        self._poll = select.poll()
        self._poll.register(file, select.POLLIN)
        self.count = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Wait for bytes and take them; 0 is the end.

        Raises:
            CommandTimeout: none came in time.
        """
        self._wait()
        size = os.readv(self._file.fileno(), [buffer])
        self.count += size
        return size

    def drain(self) -> None:
        """Read to the end."""
        while self.read(CHUNK):
            pass

    def _wait(self) -> None:
        began = time.monotonic()
        ready = self._poll.poll(1000 * max(0.0, min(self._timeout, self._patience)))
        # Only waiting counts: what the reader does with the bytes is not the registry's time.
        self._patience -= time.monotonic() - began
        if not ready:
            slow = f"came at less than {MINIMUM_RATE / 1e6:g} MB/s after {self.count} bytes"
            stalled = f"sent nothing for {self._timeout:g} s after {self.count} bytes"
            raise CommandTimeout(
                f"{self.name} {slow if self._patience <= 0 else stalled}.",
                "try again; if it stays, ask the registry.",
            )


@contextmanager
def opened(
    reference: Reference,
    size: int,
    *,
    env: Mapping[str, str | None] | None = None,
    timeout: float = STALL_SECONDS,
) -> Iterator[Blob]:
    """Stream one blob; at the end of the block the rest is read, so that its digest is proven.

    Args:
        reference: repository and digest of the blob.
        size: its size in bytes by the manifest; decides how long it may take.
        env: changes to crane's environment.
        timeout: seconds without a byte.

    Raises:
        CommandTimeout: it stalled, or it is too slow.
        Absent, CredentialError, RegistryError, Damaged: see `crane.explained`; at its end.
    """
    words = ["blob", str(reference)]
    with tempfile.TemporaryFile() as said:
        process = command.start(["crane", "-v", *words], env=env, stderr=said)
        try:
            with cast("IO[bytes]", process.stdout) as pipe:
                if sys.platform == "linux":
                    # So that crane need not wait for the reader after each 64 KiB; some kernels refuse.
                    with suppress(OSError):
                        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
                blob = Blob(pipe, str(reference), timeout, size)
                yield blob
                blob.drain()
            # The pipe ends with crane itself: there is nothing left to wait for.
            code = process.wait()
        except BaseException:
            command.stop(process)
            raise
        said.seek(0)
        if code:
            raise crane.explained(words, code, said.read().decode("utf-8", "replace"))


def unpacked(blob: Blob, media_type: str) -> BinaryIO:
    """The tar in a layer. Reading it raises one of `BROKEN` where the bytes are not of that media type.

    Raises:
        RegistryError: a foreign layer, or a media type that is not one of a layer.
    """
    if media_type.startswith(FOREIGN):
        raise RegistryError(f"The layer {blob.name} is foreign ({media_type}): its bytes are kept elsewhere.")
    if media_type not in PACKING:
        raise RegistryError(
            f"The layer {blob.name} has the media type {media_type!r}, which is none of a tar."
        )
    buffered = io.BufferedReader(blob, CHUNK)  # type: ignore[type-var]
    if PACKING[media_type] == "gzip":
        return cast("BinaryIO", gzip.GzipFile(fileobj=buffered))
    return cast("BinaryIO", zstd.ZstdFile(buffered) if PACKING[media_type] == "zstd" else buffered)
