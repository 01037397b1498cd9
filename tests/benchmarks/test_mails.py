import email

import torch
from benchmarks.mails import PAD, Mails, _text, _words

MAIL = """From: someone@example.org
Subject: Save 70% now
X-Spam-Status: Yes
Content-Type: text/html; charset="iso-8859-1"
Content-Transfer-Encoding: quoted-printable

<html><font color=3D"red">Life  insurance</font>, caf=E9</html>
"""


def test_a_mail_is_its_subject_and_its_text_without_markup_and_headers():
    text = _text(email.message_from_string(MAIL))
    assert _words(text) == ["save", "70", "%", "now", "life", "insurance", ",", "caf", "é"]


def test_padding_is_masked():
    (example,) = [Mails(torch.tensor([[2, 7, PAD]]), torch.tensor([1]))[0]]
    assert example["attention_mask"].tolist() == [1, 1, 0]
    assert example["labels"] == 1
