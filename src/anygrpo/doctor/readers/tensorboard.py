"""TensorBoard event files, without TensorBoard."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import cast

from anygrpo.doctor.log import Log, Row
from anygrpo.doctor.readers import wire


def looks_like(head: bytes) -> bool:
    """An event file begins with a TFRecord whose event holds "brain.Event:2"."""
    return b"brain.Event:" in head[:128]


def read(path: Path, source: str) -> Log:
    """Scalars of one event file, one row per step; where a resumed run wrote a step again, the later value stands."""
    log, damage = Log(source, "tensorboard"), wire.Damage()
    by_step: dict[int, Row] = {}
    with wire.mapped(path) as data:
        for record in wire.tfrecords(data, damage):
            step, values = event(record)
            if values:
                by_step.setdefault(step, {"step": float(step)}).update(values)
    log.rows = [by_step[step] for step in sorted(by_step)]
    if damage.places:
        log.notes.append(f"damaged: {damage.bytes} bytes in {damage.places} places could not be read; the rest was")
    return log


def event(record: bytes) -> tuple[int, Row]:
    """(step, scalars) of one Event message: step is field 2, summary field 5, its values field 1."""
    step, values = 0, Row()
    for number, kind, payload in wire.fields(record):
        if number == 2 and kind == 0:
            step = cast(int, payload)
        elif number == 5 and kind == 2:
            for inner, inner_kind, value in wire.fields(cast(bytes, payload)):
                if inner == 1 and inner_kind == 2:
                    tag, scalar = summary_value(cast(bytes, value))
                    if tag and scalar is not None:
                        values[tag] = scalar
    return step, values


def summary_value(message: bytes) -> tuple[str, float | None]:
    """(tag, scalar) of one Summary.Value: tag 1, simple_value 2, tensor 8 (TensorProto)."""
    tag, scalar = "", None
    for number, kind, payload in wire.fields(message):
        if number == 1 and kind == 2:
            tag = cast(bytes, payload).decode("utf-8", "replace")
        elif number == 2 and kind == 5:
            scalar = wire.float32(cast(int, payload))
        elif number == 8 and kind == 2:
            scalar = tensor_scalar(cast(bytes, payload))
    return tag, scalar


def tensor_scalar(message: bytes) -> float | None:
    """A TensorProto that holds a single float or double (dtype 1, 2); None for strings, images, histograms."""
    dtype, found = 0, None
    for number, kind, payload in wire.fields(message):
        if number == 1 and kind == 0:
            dtype = cast(int, payload)
        elif number == 4 and kind == 2 and dtype in (1, 2):
            raw, width = cast(bytes, payload), 4 * dtype
            if len(raw) == width:
                found = struct.unpack("<f" if dtype == 1 else "<d", raw)[0]
        elif number == 5 and dtype == 1:
            found = packed(payload, kind, 4)
        elif number == 6 and dtype == 2:
            found = packed(payload, kind, 8)
    return found


def packed(payload: bytes | int, kind: int, width: int) -> float | None:
    """The only element of a repeated float or double field, packed or not."""
    if kind == 2:
        raw = cast(bytes, payload)
        if len(raw) != width:
            return None
        bits = int.from_bytes(raw, "little")
    else:
        bits = cast(int, payload)
    return wire.float32(bits) if width == 4 else wire.float64(bits)
