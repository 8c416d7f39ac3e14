"""saker.torch.AdamW in place of PyTorch's: layouts, saved states, GradScaler, options that change. Plain steps are in
test_torch_small.py.
SPDX-License-Identifier: Apache-2.0
"""
import copy

import pytest

from conftest import need_torch

torch = need_torch()

import saker  # noqa: E402
import saker.torch as st  # noqa: E402

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False")
DEVICES = ["cpu", pytest.param("cuda", marks=NO_CUDA)]
LAYOUTS = {
    "gaps": lambda t: t[:, ::2],
    "rows": lambda t: t[:, :5],
    "transposed": lambda t: t.transpose(0, 1),
    "six dimensions": lambda t: t.view(3, 2, 2, 2, 2, 2).transpose(0, 3),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("amsgrad", [False, True])
def test_adamw_parameters_of_any_layout(device, layout, amsgrad):
    whole = torch.randn(6, 16, device=device)
    ours = torch.nn.Parameter(LAYOUTS[layout](whole.clone()))
    theirs = torch.nn.Parameter(ours.detach().clone())
    optimizers = st.AdamW([ours], amsgrad=amsgrad), torch.optim.AdamW([theirs], amsgrad=amsgrad)
    for _ in range(3):
        theirs.grad = torch.randn(theirs.shape, device=device)
        ours.grad = theirs.grad.clone(memory_format=torch.contiguous_format)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(ours, theirs)
    for name, state in optimizers[1].state[theirs].items():
        torch.testing.assert_close(optimizers[0].state[ours][name], state, check_stride=False)


@pytest.mark.parametrize("device", DEVICES)
def test_adamw_layout_that_changes(device):
    torch.manual_seed(0)
    models = [torch.nn.Conv2d(3, 4, 3).to(device) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = st.AdamW(models[0].parameters(), lr=0.01), torch.optim.AdamW(models[1].parameters(), lr=0.01)
    x = torch.randn(2, 3, 8, 8, device=device)
    for _ in range(2):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
            model.to(memory_format=torch.channels_last)
    for a, b in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(a, b)


def test_adamw_step_that_fails_does_not_count():
    p = torch.nn.Parameter(torch.zeros(4))
    optimizer = st.AdamW([p])
    p.grad = torch.ones(4)
    optimizer.step()
    optimizer.param_groups[0]["betas"] = (1.5, 0.9)
    with pytest.raises(saker.Error, match="beta1"):
        optimizer.step()
    assert optimizer.state[p]["step"] == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("p_type, state_type", [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)])
def test_adamw_keeps_state_dtype(device, p_type, state_type):
    params = [torch.nn.Parameter(torch.randn(4, 3, device=device).to(p_type)) for _ in range(2)]
    first = st.AdamW(params, amsgrad=True, state_dtype=state_type, max_norm=1.0)
    for _ in range(3):
        for p in params:
            p.grad = torch.randn_like(p)
        first.step()
    second = st.AdamW([torch.nn.Parameter(p.detach().clone()) for p in params], state_dtype=state_type)
    second.register_load_state_dict_pre_hook(lambda _, given: copy.deepcopy(given))
    second.load_state_dict(first.state_dict())
    same = copy.deepcopy(first)  # which goes the way of pickle
    assert (same._max_norm, same._state_dtype) == (1.0, state_type)
    for other in (second, same):
        for i, state in first.state_dict()["state"].items():
            for name, value in state.items():
                found = other.state_dict()["state"][i][name]
                assert found.dtype == value.dtype and torch.equal(found, value)
    plain = st.AdamW([torch.nn.Parameter(p.detach().clone()) for p in params])
    plain.load_state_dict(first.state_dict())
    assert plain.state_dict()["state"][0]["exp_avg"].dtype == p_type  # without state_dtype as PyTorch


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("factors", [(1.0, 2.0, 3.0), (1.0, float("inf"), 3.0)])
def test_adamw_with_grad_scaler(fused, factors):
    found = []
    for cls in (st.AdamW, torch.optim.AdamW):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = cls([p], lr=0.1, eps=1.0, fused=fused)  # with this eps the scale of the gradient shows
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale((p * torch.tensor(factors)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append((p.detach(), torch.tensor(scaler.get_scale())))
    torch.testing.assert_close(found[0], found[1])


def test_adamw_amsgrad_is_the_groups():
    torch.manual_seed(0)
    gradients = torch.randn(20, 4) * 0.01
    gradients[0] *= 500
    found = []
    for cls in (st.AdamW, torch.optim.AdamW):
        p = torch.nn.Parameter(torch.ones(4))
        optimizer = cls([p], lr=0.1, amsgrad=True)
        for p.grad in gradients.clone():
            optimizer.step()
            optimizer.param_groups[0]["amsgrad"] = False
        found.append(p.detach())
        p = torch.nn.Parameter(torch.ones(4))
        optimizer = cls([p], lr=0.1)
        p.grad = torch.ones(4)
        optimizer.step()
        optimizer.param_groups[0]["amsgrad"] = True
        with pytest.raises(KeyError, match="max_exp_avg_sq"):
            optimizer.step()
    torch.testing.assert_close(found[0], found[1])


def test_adamw_max_norm():
    for wrong in (0, 0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="AdamW: max_norm is .*, expected a number above 0"):
            st.AdamW([torch.nn.Parameter(torch.ones(3))], max_norm=wrong)
    params = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    for p, max_norm in zip(params, (None, float("inf"))):
        p.grad = torch.tensor([1.0, 1e30, -3.0])
        st.AdamW([p], max_norm=max_norm).step()
    assert torch.equal(*params)
