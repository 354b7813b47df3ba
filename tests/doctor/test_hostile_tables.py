"""Tables and archives that are no logs: NUL bytes, columns and quotes without end, lengths that lie, archives."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile

import pytest

from anygrpo.cli.main import main

ROW = b'{"step": 1, "reward": 1.0}\n'


def archive(kind: str) -> bytes:
    """With a name that leaves the folder where it is unpacked."""
    made = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(made, "w") as packed:
            packed.writestr("../../evil.jsonl", ROW * 50)
    else:
        with tarfile.open(fileobj=made, mode="w:gz") as packed:
            entry = tarfile.TarInfo("../../evil.jsonl")
            entry.size = 50 * len(ROW)
            packed.addfile(entry, io.BytesIO(ROW * 50))
    return made.getvalue()


FILES = {
    "nul.csv": b"step,reward,kl\n" + b"".join(b"%d,\0%f,\0\n" % (i, i / 10) for i in range(30)),
    "head.csv": b"step," + b"x" * 5_000_000 + b"\n1,2\n",
    "quote.csv": b'step,reward\n1,"' + b"y" * 3_000_000 + b"\n",
    "wide.csv": b",".join(b"c%d" % i for i in range(50_000)) + b"\n" + b",".join([b"1"] * 50_000) + b"\n",
    "events.out.tfevents.1.x": struct.pack("<QI", 2**62, 0) + b"x" * 100,
    "events.out.tfevents.2.x": struct.pack("<QI", 2**64 - 1, 0xFFFFFFFF) * 1000,
    "log.zip": archive("zip"),
    "log.tar.gz": archive("tar"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", FILES)
def test_none_is_an_internal_error_and_nothing_is_unpacked(tmp_path, name, capsys):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / name).write_bytes(FILES[name])
    assert main(["doctor", str(inner / name)]) in (0, 2, 3, 5), capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [name]


def test_a_link_to_a_device_without_end_is_refused(tmp_path, capsys):
    (tmp_path / "log.jsonl").symlink_to("/dev/zero")
    assert main(["doctor", str(tmp_path / "log.jsonl")]) == 3
    assert "is a device" in capsys.readouterr().err
