"""Damaged and hostile files give an error or a finding: no crash, no hang, no memory.

GLM5CHECK_MUTANTS sets how many mutants are tried; 5,000 take a few minutes.
"""

from __future__ import annotations

import os
import resource
import struct
import time
from contextlib import contextmanager

import numpy as np
import psutil
import pytest

from fixtures.gguf_files import write_set
from glm5check.checkpoint.contents import Depth
from glm5check.checkpoint.header import DEFAULT_ALIGNMENT
from glm5check.cli.audit import examine
from glm5check.errors import CheckpointError
from glm5check.records import Outcome

MUTANTS = int(os.environ.get("GLM5CHECK_MUTANTS", "300"))
SECONDS, GIBIBYTE = 5, 1 << 30
HUGE = (0, 1, 0x7F, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("healthy")).read_bytes()


@pytest.fixture
def file(tmp_path):
    write_set(tmp_path)
    return tmp_path / "micro.gguf"


def mutant(healthy: bytes, seed: int) -> bytes:
    """One of: flipped bytes, a number in the header replaced, cut, grown, a part moved, a part repeated."""
    rng = np.random.default_rng(seed)
    data = bytearray(healthy)
    header = 8000
    for _ in range(int(rng.integers(1, 4))):
        at, kind = int(rng.integers(0, min(header, len(data)))), rng.integers(0, 7)
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            data[at : at + 8] = struct.pack("<Q", HUGE[rng.integers(0, len(HUGE))])
        elif kind == 2:
            data[at : at + 4] = struct.pack("<I", HUGE[rng.integers(0, len(HUGE))] & 0xFFFFFFFF)
        elif kind == 3:
            del data[int(rng.integers(0, len(data))) :]
        elif kind == 4:
            data += bytes(rng.integers(0, 256, int(rng.integers(1, 4096)), dtype=np.uint8))
        elif kind == 5:
            data[at:at] = data[int(rng.integers(0, header)) :][: int(rng.integers(1, 64))]
        else:
            data[at : at + 64] = rng.integers(0, 256, 64, dtype=np.uint8).tobytes()
        if not data:
            break
    return bytes(data)


def test_mutants_give_an_error_or_a_finding(healthy, file):
    """A mutant may still be right, where a name or an unused value changed; then the audit says so, as fast."""
    with limited_memory():
        for seed in range(MUTANTS):
            file.write_bytes(mutant(healthy, seed))
            start = time.monotonic()
            findings = examine(file, None, 2, Depth.WEIGHTS)
            took = time.monotonic() - start
            assert findings, f"mutant {seed} is judged by nobody"
            assert took < SECONDS, f"mutant {seed} takes {took:.1f} s"


@contextmanager
def limited_memory():
    """MemoryError at more than 1 GiB beyond what the process has now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + GIBIBYTE, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def gguf(tensors: int = 0, keys: int = 0, body: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + body


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    head = struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape))
    return head + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)


HOSTILE = {
    "empty": b"",
    "magic only": b"GGUF",
    "version 1": b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
    "big endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^64 tensors": gguf(tensors=(1 << 64) - 1),
    "2^64 keys": gguf(keys=(1 << 64) - 1),
    "a key of 2^63 bytes": gguf(keys=1, body=struct.pack("<Q", 1 << 63) + bytes(64)),
    "a string of 2^62 bytes": gguf(keys=1, body=key(b"a", 8, struct.pack("<Q", 1 << 62)) + bytes(64)),
    "an array of 2^60 strings": gguf(keys=1, body=key(b"a", 9, struct.pack("<IQ", 8, 1 << 60)) + bytes(64)),
    "an array of 2^60 floats": gguf(keys=1, body=key(b"a", 9, struct.pack("<IQ", 6, 1 << 60)) + bytes(64)),
    "arrays in arrays": gguf(keys=1, body=key(b"a", 9, struct.pack("<IQ", 9, 1) * 1000)),
    "an unknown value type": gguf(keys=1, body=key(b"a", 99, bytes(64))),
    "a key twice": gguf(keys=2, body=2 * key(b"a", 4, bytes(4))),
    "a key that is no text": gguf(keys=1, body=key(b"\xff\xfe", 4, bytes(4))),
    "alignment 0": gguf(keys=1, body=key(b"general.alignment", 4, bytes(4))),
    "alignment 7": gguf(keys=1, body=key(b"general.alignment", 4, struct.pack("<I", 7))),
    "alignment text": gguf(keys=1, body=key(b"general.alignment", 8, struct.pack("<Q", 2) + b"32")),
    "split.no text": gguf(keys=1, body=key(b"split.no", 8, struct.pack("<Q", 1) + b"0")),
    "5 dimensions": gguf(tensors=1, body=tensor(b"t", (1, 1, 1, 1, 1), 0, 0)),
    "0 dimensions": gguf(tensors=1, body=tensor(b"t", (), 0, 0)),
    "an empty shape": gguf(tensors=1, body=tensor(b"t", (0, 5), 0, 0)),
    "an unknown quant type": gguf(tensors=1, body=tensor(b"t", (32,), 99, 0)),
    "2^64 weights a side": gguf(tensors=1, body=tensor(b"t", ((1 << 64) - 1,) * 4, 0, 0)),
    "an offset of 2^64": gguf(tensors=1, body=tensor(b"t", (32,), 0, (1 << 64) - 32)),
    "a tensor twice": gguf(tensors=2, body=2 * tensor(b"t", (1,), 0, 0)) + bytes(256),
    "tensors in one place": gguf(tensors=2, body=tensor(b"s", (8,), 0, 0) + tensor(b"t", (8,), 0, 0)) + bytes(256),
    "half a block": gguf(tensors=1, body=tensor(b"t", (48,), 2, 0)) + bytes(256),
    "an unaligned tensor": gguf(tensors=1, body=tensor(b"t", (1,), 0, DEFAULT_ALIGNMENT // 2)) + bytes(256),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_headers_are_refused(data, file):
    file.write_bytes(data)
    start = time.monotonic()
    with limited_memory():
        findings = examine(file, None, 2, Depth.WEIGHTS)
    assert Outcome.FAILED in {finding.outcome for finding in findings}
    assert time.monotonic() - start < SECONDS


def test_many_small_strings_are_bounded(tmp_path):
    """16 GB that are not there: a sparse file whose array claims as many empty strings as would fit."""
    file = tmp_path / "sparse.gguf"
    with file.open("wb") as stream:
        stream.write(gguf(keys=1, body=key(b"a", 9, struct.pack("<IQ", 8, 1 << 31))))
        stream.truncate(16 << 30)
    with limited_memory():
        (finding,) = examine(file, None, 2, Depth.TABLE)
    assert "cannot be right" in finding.got


def test_a_hostile_part_name_is_refused(tmp_path):
    file = tmp_path / "micro-00007-of-00003.gguf"
    file.write_bytes(gguf())
    (finding,) = examine(file, None, 2, Depth.TABLE)
    assert "names part 7 of 3" in finding.got


def test_raw_bytes_outside_the_file_raise(tmp_path):
    from glm5check.checkpoint.index import GgufSet

    file = write_set(tmp_path)
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size - 4096)
    model = GgufSet.read(file)
    last = max(model.tensors.values(), key=lambda t: t.offset)
    with pytest.raises(CheckpointError, match="not all in the file"):
        model.raw(last.name)
    with pytest.raises(CheckpointError, match="ends at byte"):
        GgufSet.open(file)
