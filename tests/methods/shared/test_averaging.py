"""The averages are means over the last steps, of all but the variances, and the dead are left as they are."""

import torch
from torch import nn

import vbdrop
from vbdrop.methods.shared.averaging import add_averages_, average_, remove_averages_, use_averages_


def test_every_value_is_the_mean_of_its_own_except_for_variances_and_the_dead():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4, bias=False))
    vbdrop.convert_(model, vbdrop.Weights(), vbdrop.Units())
    names = list(model.state_dict())
    add_averages_(model)
    drawn = []
    for count in range(1, 5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter))
        average_(model, count)
        drawn.append({name: parameter.detach().clone() for name, parameter in model.named_parameters()})
    dead = {
        f"{path}.{entry.name}": entry.dead()
        for path, module in model.named_modules()
        if hasattr(module, "variational")
        for entry in module.variational()
    }
    assert len(dead) == 4
    assert any(mask.any() for mask in dead.values())
    use_averages_(model)
    for name, last in drawn[-1].items():
        mean = torch.stack([each[name] for each in drawn]).mean(0)
        expected = last if name.endswith("log_sigma2") else torch.where(dead.get(name, torch.tensor(False)), last, mean)
        torch.testing.assert_close(model.get_parameter(name), expected, rtol=1e-6, atol=1e-6)
    assert list(remove_averages_(model).state_dict()) == names
