"""torch beside it: the same function from the same weights, blocks first, then the whole model.

In float64, with random values in every parameter, gains and biases too.  Both stay in training mode
with dropout 0: in evaluation torch's encoder takes another path, which leaves zeros on padding.
"""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import tinyfm
from tinyfm import masks, nn, optim, tensor
from tinyfm.models import Transformer, TransformerConfig

pytestmark = pytest.mark.parity


# -- weights from here to there --------------------------------------------------------------------


def random_parameters(module, seed=1):
    rng = np.random.default_rng(seed)
    module.to(dtype=np.float64)
    for p in module.parameters():
        p.data = 0.5 * rng.standard_normal(p.shape)
    return module


def copied(target, *sources):
    """Writes tinyfm parameters, one below the other, into torch's; the pair, for its gradients."""
    import torch

    with torch.no_grad():
        target.copy_(torch.tensor(np.concatenate([p.data for p in sources])))
    return target, sources


def copy_linear(theirs, ours):
    return [copied(theirs.weight, ours.weight), copied(theirs.bias, ours.bias)]


def copy_attention(theirs, ours):
    inputs = [ours.q, ours.kv] if ours.cross else [ours.qkv]
    return [
        copied(theirs.in_proj_weight, *(x.weight for x in inputs)),
        copied(theirs.in_proj_bias, *(x.bias for x in inputs)),
        *copy_linear(theirs.out_proj, ours.out),
    ]


def copy_layer(theirs, ours):
    pairs = copy_attention(theirs.self_attn, ours.attention)
    norms = [ours.attention_norm]
    if ours.cross is not None:
        pairs += copy_attention(theirs.multihead_attn, ours.cross)
        norms.append(ours.cross_norm)
    norms.append(ours.feed_forward_norm)
    for i, norm in enumerate(norms, 1):
        pairs += copy_linear(getattr(theirs, f"norm{i}"), norm)
    pairs += copy_linear(theirs.linear1, ours.feed_forward.up)
    return pairs + copy_linear(theirs.linear2, ours.feed_forward.down)


def copy_stack(theirs, ours):
    pairs = []
    for a, b in zip(theirs.layers, ours.layers, strict=True):
        pairs += copy_layer(a, b)
    return pairs + (copy_linear(theirs.norm, ours.norm) if ours.norm is not None else [])


def same_parameter_gradients(pairs):
    for target, sources in pairs:
        grads = np.concatenate([p.grad for p in sources])
        assert_allclose(grads, target.grad.numpy(), atol=1e-10)


def same_everywhere(theirs, ours, pairs, *inputs):
    """Results of both functions, and every gradient, from one random upstream gradient."""
    import torch

    other_inputs = [torch.tensor(x, requires_grad=True) for x in inputs]
    own_inputs = [tensor(x, requires_grad=True) for x in inputs]
    wanted, got = theirs(*other_inputs), ours(*own_inputs)
    assert_allclose(got.data, wanted.detach().numpy(), atol=1e-10)
    upstream = np.random.default_rng(99).standard_normal(got.shape)
    wanted.backward(torch.tensor(upstream))
    got.backward(upstream)
    for x, y in zip(own_inputs, other_inputs, strict=True):
        assert_allclose(x.grad, y.grad.numpy(), atol=1e-10)
    same_parameter_gradients(pairs)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# -- blocks ----------------------------------------------------------------------------------------


def test_linear_equals_torchs():
    import torch

    ours = random_parameters(nn.Linear(4, 3))
    theirs = torch.nn.Linear(4, 3, dtype=torch.float64)
    same_everywhere(theirs, ours, copy_linear(theirs, ours), normal(2, 5, 4))


@pytest.mark.parametrize("eps", [1e-5, 1e-12, 0.1])
def test_layer_norm_equals_torchs(eps):
    import torch

    ours = random_parameters(nn.LayerNorm(6, eps))
    theirs = torch.nn.LayerNorm(6, eps, dtype=torch.float64)
    same_everywhere(theirs, ours, copy_linear(theirs, ours), normal(2, 5, 6))


def test_rms_norm_equals_torchs():
    import torch

    ours = random_parameters(nn.RMSNorm(6))
    theirs = torch.nn.RMSNorm(6, eps=1e-6, dtype=torch.float64)
    same_everywhere(theirs, ours, [copied(theirs.weight, ours.weight)], normal(2, 5, 6))


@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_equals_torchs(padding):
    import torch

    ours = random_parameters(nn.Embedding(7, 3, padding))
    theirs = torch.nn.Embedding(7, 3, padding, dtype=torch.float64)
    ids = np.array([[1, 2, 2, 6], [1, 1, 0, 2]])
    pairs = [copied(theirs.weight, ours.weight)]
    same_everywhere(lambda: theirs(torch.tensor(ids)), lambda: ours(ids), pairs)


# tinyfm: True may look.  torch: True may not.
SEEN = {
    "none": None,
    "causal": masks.causal(),
    "padding with holes": masks.padding([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1]]),
    "allowed": masks.allowed(
        (np.random.default_rng(5).random((2, 2, 5, 5)) < 0.6) | np.eye(5, dtype=bool)
    ),
    "causal and padding": masks.causal() & masks.padding([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]),
    "prefix": masks.prefix([2, 4]),
}


@pytest.mark.parametrize("kind", SEEN)
def test_self_attention_equals_torchs(kind):
    import torch

    ours = random_parameters(nn.MultiHeadAttention(6, 2))
    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    mask, blocked = SEEN[kind], None
    if mask is not None:
        dense = np.broadcast_to(mask.dense(2, 5, 5), (2, 2, 5, 5))
        blocked = torch.tensor(~dense.reshape(4, 5, 5))
    same_everywhere(
        lambda x: theirs(x, x, x, attn_mask=blocked, need_weights=False)[0],
        lambda x: ours(x, mask=mask),
        copy_attention(theirs, ours),
        normal(2, 5, 6),
    )


@pytest.mark.parametrize("padded", [True, False])
def test_cross_attention_equals_torchs(padded):
    import torch

    ours = random_parameters(nn.MultiHeadAttention(6, 3, cross=True))
    theirs = torch.nn.MultiheadAttention(6, 3, batch_first=True, dtype=torch.float64)
    keys = np.array([[1, 1, 0, 1], [1, 0, 0, 0]], bool)
    options = {"key_padding_mask": torch.tensor(~keys)} if padded else {}
    same_everywhere(
        lambda x, m: theirs(x, m, m, need_weights=False, **options)[0],
        lambda x, m: ours(x, m, masks.padding(keys) if padded else None),
        copy_attention(theirs, ours),
        normal(2, 5, 6),
        normal(2, 4, 6, seed=1),
    )


def test_attention_weights_equal_torchs():
    import torch

    ours = random_parameters(nn.MultiHeadAttention(6, 2))
    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    copy_attention(theirs, ours)
    x, seen = normal(2, 5, 6), []
    ours(x, weights=seen)
    y = torch.tensor(x)
    wanted = theirs(y, y, y, average_attn_weights=False)[1]
    assert_allclose(seen[0], wanted.detach().numpy(), atol=1e-10)


def layer_config(norm_first=False, activation="relu"):
    return nn.LayerConfig(
        d_model=6, num_heads=2, d_ff=9, dropout=0.0, norm_first=norm_first, activation=activation
    )


def torch_options(norm_first, activation="relu"):
    import torch

    return {
        "d_model": 6,
        "nhead": 2,
        "dim_feedforward": 9,
        "dropout": 0.0,
        "activation": activation,
        "batch_first": True,
        "norm_first": norm_first,
        "dtype": torch.float64,
    }


PADDING = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)


def blocked_padding():
    import torch

    return torch.tensor(~PADDING)


def blocked_future(length):
    import torch

    return torch.triu(torch.ones(length, length, dtype=torch.bool), 1)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_equals_torchs(activation):
    import torch

    ours = random_parameters(nn.FeedForward(layer_config(activation=activation)))
    kink = torch.nn.ReLU() if activation == "relu" else torch.nn.GELU()
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 9), kink, torch.nn.Linear(9, 6)).double()
    pairs = copy_linear(theirs[0], ours.up) + copy_linear(theirs[2], ours.down)
    same_everywhere(theirs, ours, pairs, normal(2, 5, 6))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_equals_torchs(norm_first, activation):
    import torch

    ours = random_parameters(nn.Layer(layer_config(norm_first, activation)))
    theirs = torch.nn.TransformerEncoderLayer(**torch_options(norm_first, activation))
    same_everywhere(
        lambda x: theirs(x, src_key_padding_mask=blocked_padding()),
        lambda x: ours(x, masks.padding(PADDING)),
        copy_layer(theirs, ours),
        normal(2, 5, 6),
    )


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_equals_torchs(norm_first):
    import torch

    ours = random_parameters(nn.Layer(layer_config(norm_first), True))
    theirs = torch.nn.TransformerDecoderLayer(**torch_options(norm_first))
    same_everywhere(
        lambda x, m: theirs(x, m, blocked_future(4), memory_key_padding_mask=blocked_padding()),
        lambda x, m: ours(x, masks.causal(), None, m, masks.padding(PADDING)),
        copy_layer(theirs, ours),
        normal(2, 4, 6),
        normal(2, 5, 6, seed=1),
    )


@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_stack_equals_torchs(norm_first, final_norm):
    import torch

    ours = random_parameters(nn.Encoder(layer_config(norm_first), 3, final_norm))
    theirs = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(**torch_options(norm_first)),
        3,
        torch.nn.LayerNorm(6, dtype=torch.float64) if final_norm else None,
        enable_nested_tensor=False,
    )
    same_everywhere(
        lambda x: theirs(x, src_key_padding_mask=blocked_padding()),
        lambda x: ours(x, masks.padding(PADDING)),
        copy_stack(theirs, ours),
        normal(2, 5, 6),
    )


@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_stack_equals_torchs(norm_first, final_norm):
    import torch

    ours = random_parameters(nn.Decoder(layer_config(norm_first), 3, True, final_norm))
    theirs = torch.nn.TransformerDecoder(
        torch.nn.TransformerDecoderLayer(**torch_options(norm_first)),
        3,
        torch.nn.LayerNorm(6, dtype=torch.float64) if final_norm else None,
    )
    same_everywhere(
        lambda x, m: theirs(x, m, blocked_future(4), memory_key_padding_mask=blocked_padding()),
        lambda x, m: ours(x, masks.causal(), m, masks.padding(PADDING)),
        copy_stack(theirs, ours),
        normal(2, 4, 6),
        normal(2, 5, 6, seed=1),
    )


# -- the whole model -------------------------------------------------------------------------------

WIDTH, WORDS = 8, 11
SIZES = {"vocab_size": WORDS, "d_model": WIDTH, "dropout": 0.0, "label_smoothing": 0.1}
for side in ("encoder", "decoder"):
    SIZES |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 12}


class Twin:
    """torch.nn.Transformer between the embeddings and the head of the paper.

    Its two final norms, which the paper has not, are taken away unless norms come first; the
    padding row gets no gradient from look-ups.
    """

    def __init__(self, model, final_norms=False):
        import torch

        config = model.config
        options = {"batch_first": True, "norm_first": config.norm_first, "dtype": torch.float64}
        sizes = (WIDTH, 2, 12, 0.0)  # width, heads, feed-forward, dropout
        encoder = torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(*sizes, **options),
            2,
            torch.nn.LayerNorm(WIDTH, dtype=torch.float64),
            enable_nested_tensor=False,
        )
        self.inner = torch.nn.Transformer(
            WIDTH, 2, 2, 2, 12, 0.0, custom_encoder=encoder, **options
        )
        if not (config.norm_first or final_norms):
            self.inner.encoder.norm = self.inner.decoder.norm = None
        self.pairs = []
        for theirs, ours in (
            (self.inner.encoder, model.encoder),
            (self.inner.decoder, model.decoder),
        ):
            self.pairs += copy_stack(theirs, ours)
        tables = (model.embedding, model.decoder_embedding, model.head)
        copies = {table: self.new_copy(table) for table in dict.fromkeys(tables)}
        self.source, self.target, self.head = (copies[table] for table in tables)
        learned = config.positions == "learned"
        self.positions = [
            self.new_copy(x) if learned else torch.tensor(nn.sinusoids(6, WIDTH))
            for x in (model.encoder_positions, model.decoder_positions)
        ]

    def new_copy(self, module):
        """A parameter like the module's weight."""
        import torch

        parameter = torch.nn.Parameter(torch.empty(module.weight.shape, dtype=torch.float64))
        self.pairs.append(copied(parameter, module.weight))
        return parameter

    def embedded(self, table, positions, ids):
        import torch

        vectors = torch.nn.functional.embedding(torch.tensor(ids), table, padding_idx=0)
        return vectors * math.sqrt(WIDTH) + positions[: ids.shape[1]]

    def __call__(self, input_ids, attention_mask, decoder_input_ids, labels):
        """Logits and the loss with label smoothing."""
        import torch

        blocked = torch.tensor(attention_mask == 0)
        hidden = self.inner(
            self.embedded(self.source, self.positions[0], input_ids),
            self.embedded(self.target, self.positions[1], decoder_input_ids),
            tgt_mask=blocked_future(decoder_input_ids.shape[1]),
            src_key_padding_mask=blocked,
            memory_key_padding_mask=blocked,
        )
        logits = hidden @ self.head.T
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), torch.tensor(labels.ravel()), label_smoothing=0.1
        )
        return logits, loss


def batch(seed, rows=3, source=6, target=4):
    """Sources with a padded end, targets with one too."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, WORDS, (rows, source))
    labels = rng.integers(2, WORDS, (rows, target))
    ids[1, 4:] = 0
    labels[2, 2:] = -100
    decoder_ids = np.concatenate([np.ones((rows, 1), int), labels[:, :-1]], 1)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).astype(int),
        "decoder_input_ids": np.where(decoder_ids == -100, 0, decoder_ids),
        "labels": labels,
    }


def random_model(**switches):
    tinyfm.manual_seed(0)
    model = Transformer(TransformerConfig(**SIZES, **switches, max_position_embeddings=6))
    return random_parameters(model, seed=2)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_model_trains_as_torchs(norm_first, tied, positions):
    """Logits, loss and every gradient, in each of three steps of Adam on Noam's schedule."""
    import torch

    model = random_model(norm_first=norm_first, share_embeddings=tied, positions=positions)
    twin = Twin(model)
    compared = [id(p) for _, sources in twin.pairs for p in sources]
    assert sorted(compared) == sorted(id(p) for p in model.parameters())
    before = {name: p.data.copy() for name, p in model.named_parameters()}
    adam = {"betas": (0.9, 0.98), "eps": 1e-9}
    ours = optim.Adam(model.parameters(), lr=1.0, **adam)
    theirs = torch.optim.Adam([target for target, _ in twin.pairs], lr=1.0, **adam)
    noam = torch.optim.lr_scheduler.LambdaLR(
        theirs, lambda done: WIDTH**-0.5 * min((done + 1) ** -0.5, (done + 1) * 40**-1.5)
    )
    for step in (1, 2, 3):
        inputs = batch(step)
        logits, loss = twin(**inputs)
        output = model(**inputs)
        assert_allclose(output.logits.data, logits.detach().numpy(), atol=1e-9)
        assert output.loss.item() == pytest.approx(loss.item(), abs=1e-9)
        for optimizer, of in ((ours, output.loss), (theirs, loss)):
            optimizer.zero_grad()
            of.backward()
        same_parameter_gradients(twin.pairs)
        ours.step(optim.noam(WIDTH, 40)(step))
        theirs.step()
        noam.step()
    for target, sources in twin.pairs:
        values = np.concatenate([p.data for p in sources])
        assert_allclose(values, target.detach().numpy(), atol=1e-9)
    moved = [np.abs(p.data - before[name]).max() for name, p in model.named_parameters()]
    assert min(moved) > 1e-3


def test_torchs_own_final_norms_make_another_model():
    """parity.md, trap 13: seen only where gains and biases are random."""
    model = random_model()
    (logits, _), (others, _) = Twin(model)(**batch(1)), Twin(model, final_norms=True)(**batch(1))
    assert (logits - others).abs().max() > 0.1


def test_a_padded_encoder_row_is_torchs_in_training_mode():
    """Rows of padding are computed like others, and seen by none (parity.md, trap 14)."""
    import torch

    model = random_model()
    twin, inputs = Twin(model), batch(1)
    memory = model(**inputs).encoder_last_hidden_state.data
    wanted = twin.inner.encoder(
        twin.embedded(twin.source, twin.positions[0], inputs["input_ids"]),
        src_key_padding_mask=torch.tensor(inputs["attention_mask"] == 0),
    )
    assert_allclose(memory, wanted.detach().numpy(), atol=1e-9)
    assert (memory[1, 4:] != 0).all()
