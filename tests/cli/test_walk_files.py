"""The page of a walk and the models beside it."""

import torch
from torch import nn

import vbdrop as library
from vbdrop.cli.walk_files import write_walk


def test_the_page_names_the_files_beside_it(tmp_path):
    def make():
        return nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 2))

    torch.manual_seed(0)
    x = torch.randn(100, 6)
    y = (x[:, 0] > 0).long()
    result = library.shrink(make(), (x, y), valid=(x, y), target=library.Target(macs=8, train=0), epochs=4, lr=0.01)
    page = tmp_path / "new" / "page.html"
    lines, figures = write_walk(result, page, "walk")
    files = [one["file"] for one in (*figures["kept"], figures)]
    assert len(files) == len(result.kept) + 1 >= 3
    assert files[-1] == "walk.safetensors"
    assert {path.name for path in page.parent.iterdir()} == {*files, "page.html"}
    assert len(lines) == len(files) + 1
    for file, kept in zip(files, (*result.kept, result), strict=True):
        assert file in page.read_text()
        assert torch.equal(library.load(page.parent / file, model=make())(x), kept.model(x))
