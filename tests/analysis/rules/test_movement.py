import torch
from tests.compression.nets import Branches, randomise_, removed
from torch import nn

IMAGES = torch.randn(2, 3, 4, 4).double()


class Moved(nn.Module):
    """Six channels, of which three are constants and one is not read, moved about before they are read."""

    def __init__(self, move, inputs, channel_of):
        super().__init__()
        self.move = move
        self.first, self.last = nn.Conv2d(3, 6, 1), nn.Linear(inputs, 2)
        randomise_(self)
        with torch.no_grad():
            self.first.weight[:3] = 0
            for feature in range(inputs):
                if channel_of(feature) == 5:
                    self.last.weight[:, feature] = 0

    def forward(self, x):
        return self.last(self.move(torch.sigmoid(self.first(x))))


MOVES = [  # the move, the features behind it, the channel of a feature, the features that are left
    (lambda x: x.flatten(1), 96, lambda f: f // 16, 32),
    (lambda x: x.permute(0, 2, 3, 1).flatten(1), 96, lambda f: f % 6, 32),
    (lambda x: x.permute(0, 2, 3, 1), 6, lambda f: f, 2),
    (lambda x: x.transpose(1, 3).reshape(-1, 6), 6, lambda f: f, 2),
    (lambda x: x.view(x.shape[0], 6, 16).transpose(1, 2), 6, lambda f: f, 2),
    (lambda x: x.unsqueeze(2).squeeze(2).flip(1).flatten(2).mT, 6, lambda f: 5 - f, 2),
    (lambda x: x[:, :, 1, 2:].flatten(1), 12, lambda f: f // 2, 4),
    (lambda x: x[:, 1:, 0, 0], 5, lambda f: f + 1, 2),
    (lambda x: x[:, ::2, 0, 0], 3, lambda f: 2 * f, 1),
    (lambda x: torch.cat(x[..., 0, 0].split([4, 2], 1)[::-1], 1), 6, lambda f: (f + 4) % 6, 2),
    (lambda x: torch.cat(x[..., 0, 0].split([1, 5], 1), 1), 6, lambda f: f, 2),
    (lambda x: torch.cat(x[..., 0, 0].chunk(2, 1)[::-1], 1), 6, lambda f: (f + 3) % 6, 2),
    (lambda x: x[..., 0, 0].repeat(1, 2), 12, lambda f: f % 6, 4),
    (lambda x: x.unflatten(2, (2, 2)).flatten(2, 3).flatten(1), 96, lambda f: f // 16, 32),
    (lambda x: x[..., 0, 0].roll(2, 1), 6, lambda f: (f - 2) % 6, 2),
    (lambda x: x[:, torch.tensor([5, 5, 3, 0, 4]), 0, 0], 5, lambda f: [5, 5, 3, 0, 4][f], 2),
    (lambda x: x[..., 0, 0].repeat_interleave(2, 1), 12, lambda f: f // 2, 4),
]


def test_channels_are_followed():
    removal = removed(Branches(Moved(*move[:3]) for move in MOVES), IMAGES)
    found = [removal.model.get_submodule(f"{i}.last").in_features for i in range(len(MOVES))]
    assert found == [left for *_, left in MOVES]
    assert removal.left == {}


def test_channels_that_are_spread_over_axes_stay_and_are_named():
    moves = [
        lambda x: x[:, torch.tensor([[0, 1, 2], [3, 4, 5]])].flatten(1, 2)[..., 0, 0],
        lambda x: torch.stack([x[:, i, 0, 0] for i in range(6)], 1),
    ]
    removal = removed(Branches(Moved(move, 6, lambda f: f) for move in moves), IMAGES)
    assert [removal.model.get_submodule(f"{i}.first").out_channels for i in range(2)] == [6, 6]
    assert sum("several indices" in reason or "one at a time" in reason for reason in removal.left.values()) >= 2


def test_a_slice_without_channels_takes_none():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            x = self.first(x)
            return self.last(torch.cat([x[:, 4:], x], 1))

    model = randomise_(Empty())
    with torch.no_grad():
        model.last.weight[:, 0] = 0
    removed(model, torch.randn(2, 3).double())


def test_channels_on_several_axes_go_in_whole_slices():
    moves = [
        lambda x: x[..., 0, 0].view(-1, 2, 3).transpose(1, 2).flatten(1),  # a channel shuffle: 0, 3, 1, 4, 2, 5
        lambda x: x[..., 0, 0].view(-1, 3, 2).amax(2, keepdim=True).expand(-1, 3, 2).reshape(-1, 6),
    ]
    for move, dead in zip(moves, ([0, 1], [0, 1]), strict=True):
        model = Moved(move, 6, lambda f: f)
        with torch.no_grad():
            randomise_(model).last.weight[:, dead] = 0
        removal = removed(model, IMAGES)
        assert removal.model.get_submodule("first").out_channels == 4
        assert removal.left == {}


class LastStep(nn.Module):
    """Takes the step of each sequence that another input says, and the sequences in an order of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x, steps):
        x = self.first(x).index_select(0, steps.argsort())
        return self.last(x[torch.arange(len(x)), steps])


@torch.no_grad()
def test_what_an_input_picks_on_another_axis_keeps_the_channels_apart():
    model = randomise_(LastStep())
    model.last.weight[:, [1, 4]] = 0
    small = removed(model, torch.randn(3, 5, 4).double(), torch.tensor([4, 0, 2])).model
    assert small.get_submodule("first").out_features == 4
