"""Arrays that are none of NumPy's go through every op, so that GPU paths are walked without a GPU.

Two nets: a stand-in array type that refuses what a device array would do slowly or not at all, and
a scan of the names that the sources take from `xp`, which both libraries must have.
"""

import ast
import functools
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyfm import Tensor, gradcheck, masks, no_grad, ops, tensor
from tinyfm.backend import array_module, device_of, keep_mask, to_numpy
from tinyfm.masks import Mask
from tinyfm_tests import standin
from tinyfm_tests.registry import CASES, SHIPPED, Call, values_and_gradients

EXAMPLES = max(10, settings.default.max_examples // 5)


@pytest.fixture(autouse=True)
def cupyx(monkeypatch):
    """What erf imports for arrays that are none of NumPy's."""
    installed_cupy()  # it looks for the real cupyx
    path = ["cupyx", "cupyx.scipy", "cupyx.scipy.special"]
    modules = [types.ModuleType(name) for name in path]
    modules[0].scipy, modules[1].special, modules[2].erf = modules[1], modules[2], standin.erf
    for name, module in zip(path, modules, strict=True):
        monkeypatch.setitem(sys.modules, name, module)


def moved(x):
    """Stand-ins for all NumPy arrays in x."""
    if isinstance(x, np.ndarray):
        return standin.asarray(x)
    if isinstance(x, tuple | list):
        return type(x)(map(moved, x))
    if isinstance(x, Mask):
        return Mask(x.causal, moved(x.prefix), moved(x.keys), moved(x.allowed))
    return x


def leaf(*values, dtype=np.float32):
    return Tensor(standin.asarray(np.array(values, dtype)), requires_grad=True)


# -- the stand-in is as strict as it should be -----------------------------------------------------

REFUSED = {
    "__array__": lambda x: np.asarray(x),
    "a NumPy function": lambda x: np.exp(x),
    "np.concatenate": lambda x: np.concatenate([x, x]),
    "np.where": lambda x: np.where(x, 1, 0),
    "a NumPy array on the right": lambda x: x + np.ones(2),
    "a NumPy array on the left": lambda x: np.ones(2) * x,
    "a NumPy array in place": lambda x: x.__iadd__(np.ones(2)),
    "a NumPy array as argument": lambda x: standin.maximum(x, np.ones(2)),
    "a NumPy array in a list": lambda x: standin.concatenate([x, np.ones(2)]),
    "a NumPy array as out": lambda x: standin.exp(x, out=np.ones(2)),
    "NumPy indices": lambda x: x[np.array([0, 1])],
    "NumPy indices in a tuple": lambda x: x[(np.array([0, 1]),)],
    "NumPy values": lambda x: x.__setitem__(0, np.ones(())),
    "indices of a NumPy array": lambda x: np.ones(3)[x.astype(int)],
    "bool()": lambda x: bool(x[0]),
    "if": lambda x: 1 if x.sum() > 0 else 2,
    "float()": lambda x: float(x[0]),
    "int()": lambda x: int(x[0]),
    "math": lambda x: math.sqrt(x[0]),
    "range": lambda x: range(x[0]),
    "iteration": lambda x: list(x),
    "unpacking": lambda x: [*x],
    "in": lambda x: 1 in x,
}


@pytest.mark.parametrize("how", REFUSED)
def test_the_stand_in_refuses(how):
    with pytest.raises(TypeError):
        REFUSED[how](standin.asarray(np.array([1.0, 2.0])))


def test_the_stand_in_does_what_arrays_do():
    x = standin.asarray(np.arange(6.0).reshape(2, 3))
    assert type(x) is standin.ndarray
    assert not isinstance(x, np.ndarray)
    assert array_module(x) is standin
    assert (x.shape, x.dtype, x.ndim, x.size, len(x)) == ((2, 3), np.float64, 2, 6, 2)
    assert x.T.base is x
    assert x.reshape(3, 2)[1:].base is x
    assert (x + 1).base is None
    assert standin.exp(x, out=x) is x
    assert (2 * x / x).get().tolist() == [[2, 2, 2], [2, 2, 2]]
    assert type(x.sum()) is type(x[0, 0]) is type(np.float64(2) * x) is standin.ndarray
    assert x[0, 0].item() == 1
    x[standin.arange(2), 1] = 5
    assert x[:, 1].get().tolist() == [5, 5]


@pytest.mark.parametrize("name", ["frompyfunc", "nditer", "no_such_name", "lib"])
def test_the_stand_in_has_no_more_than_cupy(name):
    assert not hasattr(standin, name)


@pytest.mark.parametrize("name", ["tolist", "getfield", "resize"])
def test_its_arrays_have_no_more_than_cupys(name):
    assert not hasattr(standin.asarray(np.ones(2)), name)


# -- the registry ----------------------------------------------------------------------------------


def on_the_device(function, call):
    call = Call(moved(call.args), {name: moved(x) for name, x in call.options.items()})
    args = [
        Tensor(x, requires_grad=True) if hasattr(x, "dtype") and x.dtype.kind == "f" else x
        for x in call.args
    ]
    return args, function(*args, **call.options)


def compare(function, call):
    """Forward and backward with stand-ins equal those with NumPy, and stay stand-ins."""
    values, gradients = values_and_gradients(function, call)
    args, result = on_the_device(function, call)
    results = list(result) if isinstance(result, tuple) else [result]
    rng = np.random.default_rng(0)
    for n, y in enumerate(results):
        g = np.asarray(rng.standard_normal(y.shape), y.dtype)
        y.backward(standin.asarray(g), retain_graph=n + 1 < len(results))
    found = [a.grad for a in args if isinstance(a, Tensor) and a.grad is not None]
    assert {type(x) for x in [*(y._data for y in results), *found]} <= {standin.ndarray}
    for y, wanted in zip(results, values, strict=True):
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-10, atol=1e-12, strict=True)
    for g, wanted in zip(found, [g for g in gradients if g is not None], strict=True):
        np.testing.assert_allclose(g.get(), wanted, rtol=1e-10, atol=1e-12, strict=True)


CPU_ONLY = {"fused_attention"}  # attention chooses by itself, see below
OWN_MASKS = {"dropout"}  # the same mask is promised on one device only


@pytest.mark.parametrize(
    "function",
    [f for f in SHIPPED if f.__name__ not in CPU_ONLY | OWN_MASKS],
    ids=lambda f: f.__name__,
)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_every_op_runs_on_stand_ins(function, data):
    compare(function, data.draw(CASES[function].calls))


@pytest.mark.parametrize("p", [0.5, 0.3, 0.0, 1.0])
def test_dropout_with_the_devices_own_mask(p):
    x = np.arange(1.0, 13.0).reshape(3, 4)
    kept = keep_mask(7, p, 3, 4, standin.asarray(x)).get()
    scale = 0 if p == 1 else 1 / (1 - p)
    t = Tensor(standin.asarray(x), requires_grad=True)
    y = ops.dropout(t, p=p, seed=7)
    y.backward(standin.ones((3, 4)))
    np.testing.assert_allclose(y.numpy(), x * kept * scale)
    np.testing.assert_allclose(t.grad.get(), kept * scale)
    assert kept.all() == (p == 0)


MASKS = {
    "none": None,
    "causal": masks.causal(),
    "prefix": masks.prefix([2, 4]),
    "padding": masks.causal() & masks.padding([[0, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
    "allowed": masks.allowed(np.tri(4, 5, 1, bool)),
    "bool array": np.tri(4, 5, 1, dtype=bool),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("implementation", ["auto", "composed"])
def test_attention_chooses_composed_by_itself(implementation, mask):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in [(2, 2, 4, 3), (2, 2, 5, 3), (2, 2, 5, 3)]]
    arrays += [rng.standard_normal(s) for s in [(2, 4, 5), (2, 8)]]
    here = [Tensor(x, requires_grad=True) for x in arrays]
    there = [Tensor(standin.asarray(x), requires_grad=True) for x in arrays]
    wanted = ops.attention(*here[:3], MASKS[mask], *here[3:])
    found = ops.attention(*there[:3], moved(MASKS[mask]), *there[3:], implementation=implementation)
    np.testing.assert_allclose(found.numpy(), wanted.data, rtol=1e-12, atol=1e-14)
    for y in (wanted, found):
        y.sum().backward()
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(b.grad.get(), a.grad, rtol=1e-10, atol=1e-12)


def test_attention_with_dropout_runs_on_stand_ins():
    q = leaf([[1.0, 2.0]], [[3.0, 4.0]])
    out = ops.attention(q, q, q, masks.causal(), dropout=0.5, dropout_seed=1)
    out.sum().backward()
    assert type(q.grad) is standin.ndarray


PLANTED = {
    "a NumPy function": lambda x: (np.tanh(x), (lambda g: g,)),
    "a NumPy array": lambda x: (x + np.zeros(x.shape), (lambda g: g,)),
    "a branch": lambda x: (x if x.sum() > 0 else -x, (lambda g: g,)),
    "NumPy indices in backward": lambda x: (x * 1, (lambda g: g[np.arange(len(g))],)),
    "a gradient of NumPy": lambda x: (x * 1, (lambda g: np.zeros(x.shape),)),
    "a result of NumPy": lambda x: (np.zeros(x.shape), (lambda g: g,)),
    "a name that CuPy lacks": lambda x: (
        array_module(x).frompyfunc(math.tanh, 1, 1)(x).astype(x.dtype),
        (lambda g: g,),
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault, monkeypatch):
    """The same comparison that runs over the registry fails for an op that strays to NumPy."""
    call = Call((np.array([0.5, 1.5]),), {})
    compare(ops.tanh, call)
    monkeypatch.setattr(ops.tanh, "__wrapped__", PLANTED[fault])
    with pytest.raises((TypeError, AttributeError, AssertionError)):
        compare(ops.tanh, call)


# -- the engine on stand-ins -----------------------------------------------------------------------


def test_a_tensor_of_a_stand_in_tells_its_device():
    x = leaf(1.0, 2.0)
    assert (x.device, device_of(x._data)) == ("cuda:0", "cuda:0")
    assert tensor([1.0]).device == "cpu"
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"


def test_r81_a_device_tensor_becomes_a_numpy_array_by_an_explicit_call_only():
    x = leaf(1.0, 2.0)
    assert type(x.numpy()) is type(to_numpy(x.data)) is np.ndarray
    assert x.numpy().tolist() == [1, 2]
    assert x[0].item() == 1
    with pytest.raises(TypeError, match=r"cuda:0.*\.numpy\(\)"):
        np.asarray(x)


MIXED = {
    "add": lambda x, here: x + here,
    "mul": lambda x, here: here * x,
    "matmul": lambda x, here: x @ Tensor(here),
    "where": lambda x, here: ops.where(here > 0, x, 0.0),
    "embedding": lambda x, here: ops.embedding(x[:, None], np.array([0, 1])),
    "linear": lambda x, here: ops.linear(Tensor(here), x[None]),
    "concatenate": lambda x, here: ops.concatenate([x, Tensor(here)]),
    "cross_entropy": lambda x, here: ops.cross_entropy(x[None], np.array([1])),
    "maximum": lambda x, here: ops.maximum(x._data, here),  # no tensor among them
}


@pytest.mark.parametrize("name", MIXED)
def test_r81_mixing_devices_is_one_error_that_names_both_and_the_op(name):
    with pytest.raises(TypeError) as caught:
        MIXED[name](leaf(1.0, 2.0), np.array([1.0, 2.0], np.float32))
    words = str(caught.value)
    assert f"op {name!r}" in words
    assert "cpu" in words
    assert "cuda:0" in words


@pytest.mark.parametrize("mask", ["prefix", "padding", "allowed", "bool array"])
def test_r81_a_mask_on_another_device_names_both(mask):
    q = Tensor(standin.ones((2, 2, 4, 3)))
    k = Tensor(standin.ones((2, 2, 5, 3)))
    with pytest.raises(TypeError) as caught:
        ops.attention(q, k, k, MASKS[mask])
    assert "cpu" in str(caught.value)
    assert "cuda:0" in str(caught.value)


@pytest.mark.parametrize("other", [2, 2.5, True, np.float64(2), np.int64(2), [2.0, 3.0], [2, 3]])
def test_numbers_and_lists_go_to_the_tensors_device(other):
    x = leaf(1.0, 2.0)
    for y in (x + other, other * x, x / other, other - x):
        assert type(y._data) is standin.ndarray
        assert y.dtype == np.float32
        y.sum().backward()
    assert type(x.grad) is standin.ndarray


def test_a_plain_stand_in_on_the_left():
    x = leaf(1.0, 2.0)
    y = standin.asarray(np.array([3.0, 4.0])) * x
    assert (type(y), y.dtype) == (Tensor, np.float32)
    assert y.numpy().tolist() == [3, 8]


def test_r8_leaf_gradients_on_the_device_are_their_own():
    a, b = leaf(1.0, 1.0), leaf(1.0, 1.0)
    (a + b).sum().backward()
    a.grad[0] = 99
    assert b.grad.get().tolist() == [1, 1]
    ((a + b) + a).sum().backward()
    assert (a.grad.get().tolist(), b.grad.get().tolist()) == ([101, 3], [2, 2])


def test_writes_on_the_device_are_seen():
    w = leaf(1.0, 2.0)
    y = (w * w).sum()
    with no_grad():
        view = w.reshape(2, 1)
    view.data = standin.zeros((2, 1), np.float32)
    assert w.numpy().tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="written since"):
        y.backward()


def test_the_numpy_and_the_device_graph_live_in_one_process():
    here, there = tensor([1.0, 2.0], requires_grad=True), leaf(1.0, 2.0)
    for x in (here, there):
        ops.layer_norm(ops.gelu(x), x, None).sum().backward()
    np.testing.assert_allclose(there.grad.get(), here.grad, rtol=1e-6)
    gradcheck(lambda x: x * x, tensor(np.ones(2), requires_grad=True))


# -- the names that the sources take from xp -------------------------------------------------------

ROOT = Path(__file__).parent.parent / "tinyfm"
SCANNED = [*sorted((ROOT / "ops").glob("*.py")), *(ROOT / f"{name}.py" for name in (
    "arrays", "autograd", "backend", "masks",
))]  # fmt: skip


def names_of_xp(source):
    """{dotted name: line} of what is taken from `xp` or `array_module(...)`, as in xp.add.at."""
    found = {}

    def visit(node):
        names = []
        chain = node
        while isinstance(chain, ast.Attribute):
            names.append(chain.attr)
            chain = chain.value
        called = chain.func if isinstance(chain, ast.Call) else None
        is_xp = isinstance(chain, ast.Name) and chain.id == "xp"
        is_call = getattr(called, "id", getattr(called, "attr", None)) == "array_module"
        if names and (is_xp or is_call):
            found.setdefault(".".join(reversed(names)), node.lineno)
        else:
            chain = node
        for child in ast.iter_child_nodes(chain):
            visit(child)

    visit(ast.parse(source))
    return found


@functools.cache
def installed_cupy():
    try:
        import cupy
    except ImportError:
        return None
    return cupy


def has(module, name):
    try:
        functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        return False
    return True


def lacking(source):
    """Which names that a source takes from xp are missing in NumPy or in CuPy, with the lines."""
    cupy = installed_cupy()
    return {
        name: line
        for name, line in names_of_xp(source).items()
        if not has(np, name) or not (has(cupy, name) if cupy else committed(name))
    }


def committed(name):
    first, _, rest = name.partition(".")
    if rest and isinstance(getattr(np, first, None), np.ufunc):
        name = f"add.{rest}"  # the methods of all ufuncs
    return name in standin.CUPY_NAMES and first in standin.CUPY_NAMES


@pytest.mark.parametrize("path", SCANNED, ids=lambda p: p.name)
def test_every_name_taken_from_xp_is_in_both_libraries(path):
    assert lacking(path.read_text()) == {}


def test_the_scan_reads_something():
    found = set().union(*(names_of_xp(path.read_text()) for path in SCANNED))
    assert {"add.at", "random.RandomState", "where", "einsum", "broadcast_to"} <= found


@pytest.mark.parametrize(
    "source, name",
    [
        ("def f(x):\n    xp = array_module(x)\n    return xp.frompyfunc(x)", "frompyfunc"),
        ("y = array_module(x).asscalar(x)", "asscalar"),
        ("y = backend.array_module(x).asnumpy(x)", "asnumpy"),
        ("xp.add.nowhere(x, 1)", "add.nowhere"),
        ("xp.random.default_rng_of_mine(3)", "random.default_rng_of_mine"),
        ("y = xp.ones(xp.nditer(3))", "nditer"),
        ("y = array_module(xp.nditer(3)).ones(3)", "nditer"),
    ],
)
def test_a_planted_name_is_found(source, name):
    assert name in lacking(source)
    assert "ones" not in lacking(source)


def test_the_committed_list_finds_the_same(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "installed_cupy", lambda: None)
    assert {n for path in SCANNED for n in lacking(path.read_text())} == set()
    assert set(lacking("xp.frompyfunc(1)\nxp.add.nowhere()\nxp.add.at()")) == {
        "frompyfunc",
        "add.nowhere",
    }


def test_the_committed_list_is_that_of_its_cupy():
    """Made from CuPy 14.2.0: public names of cupy, cupy.random, RandomState, a ufunc, ndarray."""
    cupy = installed_cupy()
    if cupy is None or cupy.__version__ != "14.2.0":
        pytest.skip("CuPy 14.2.0 is not installed")
    parts = {
        "": cupy,
        "random.": cupy.random,
        "random.RandomState.": cupy.random.RandomState,
        "add.": cupy.add,
        "ndarray.": cupy.ndarray,
    }
    names = {p + n for p, part in parts.items() for n in dir(part) if not n.startswith("_")}
    # submodules that were imported since stand in the module too
    modules = {n for n in names if isinstance(getattr(cupy, n, None), types.ModuleType)}
    assert names - modules == standin.CUPY_NAMES - modules
