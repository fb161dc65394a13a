"""generate() beside that of transformers: ids, scores, and the probabilities that are drawn from.

Every family is a row of FAMILIES: how to make a random model of transformers, in float64.
"""

import warnings
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tinyfm import nn, pretrained
from tinyfm.generation import GenerationConfig, probabilities, processors

pytestmark = pytest.mark.parity

# Padding and end: apart, the same, low and high; 0 is transformers' odd case.
PAD_AND_END = ((0, 2), (0, 1), (13, 0), (3, 2))
LONGEST = 20  # new tokens


def marian(rng):
    import transformers

    sizes = translator_sizes(rng)
    sizes["decoder_vocab_size"] = sizes["vocab_size"]
    pad, eos = PAD_AND_END[rng.integers(4)]
    ids = {"pad_token_id": pad, "eos_token_id": eos, "forced_eos_token_id": None}
    ids["decoder_start_token_id"] = int(rng.choice([pad, 1]))
    switches = {"scale_embedding": True, "activation_function": "swish"}
    config = transformers.MarianConfig(**sizes, **ids, **switches)
    return leaning(transformers.MarianMTModel(config).double(), rng)


def bart(rng):
    import transformers

    pad, eos = PAD_AND_END[rng.integers(4)]
    ids = {"pad_token_id": pad, "eos_token_id": eos, "forced_eos_token_id": None}
    ids["decoder_start_token_id"] = int(rng.choice([eos, 1]))
    switches = {"scale_embedding": bool(rng.integers(2))}
    config = transformers.BartConfig(**translator_sizes(rng), **ids, **switches)
    return leaning(transformers.BartForConditionalGeneration(config).double(), rng)


def translator_sizes(rng):
    vocab, d_head = int(rng.integers(14, 40)), int(rng.choice([2, 4, 8]))
    sizes = {"vocab_size": vocab, "d_model": 4 * d_head, "max_position_embeddings": 24}
    for side in ("encoder", "decoder"):
        sizes |= {
            f"{side}_layers": int(rng.integers(1, 4)),
            f"{side}_attention_heads": int(rng.choice([2, 4])),
            f"{side}_ffn_dim": int(rng.integers(8, 25)),
        }
    return sizes


def leaning(model, rng):
    """With random weights, and a bias of the logits to the end token: or few would ever end."""
    import torch

    std = rng.choice([0.3, 0.6, 1.0])
    randomize(model, rng, std)
    with torch.no_grad():
        model.final_logits_bias[0, model.config.eos_token_id] = rng.uniform(3, 9) * std
    return model


def t5(rng):
    import torch
    import transformers

    pad, eos = PAD_AND_END[rng.integers(4)]
    proj = ("relu", "gated-gelu")[rng.integers(2)]
    layers = int(rng.integers(1, 4))
    config = transformers.T5Config(
        vocab_size=int(rng.integers(14, 40)),
        d_model=int(rng.choice([8, 16, 32])),
        d_kv=int(rng.integers(2, 9)),
        d_ff=int(rng.integers(8, 25)),
        num_layers=layers,
        num_decoder_layers=int(rng.integers(1, layers + 1)),  # their cache has no more of them
        num_heads=int(rng.choice([2, 4])),
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        feed_forward_proj=proj,
        tie_word_embeddings=proj == "relu",  # in its words: the head is scaled
        pad_token_id=pad,
        eos_token_id=eos,
        decoder_start_token_id=int(rng.choice([pad, 1])),
    )
    model = transformers.T5ForConditionalGeneration(config).double()
    if proj != "relu":
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    randomize(model, rng, rng.choice([0.3, 0.6]))
    with torch.no_grad():  # or few would ever end
        model.lm_head.weight[eos] *= rng.uniform(1, 4)
    return model


def gpt2(rng):
    import transformers

    activation = str(rng.choice(["gelu_new", "relu", "gelu"]))
    config = transformers.GPT2Config(**gpt_sizes(rng), activation_function=activation)
    model = transformers.GPT2LMHeadModel(config).double()
    return tilted(model, rng, model.transformer.wte, model.transformer.ln_f)


def gpt1(rng):
    import transformers

    config = transformers.OpenAIGPTConfig(**gpt_sizes(rng), afn=str(rng.choice(["gelu", "relu"])))
    model = transformers.OpenAIGPTLMHeadModel(config).double()
    return tilted(model, rng, model.transformer.tokens_embed, model.transformer.h[-1].ln_2)


def gpt_sizes(rng):
    pad, eos = PAD_AND_END[rng.integers(4)]
    return {
        "vocab_size": int(rng.integers(14, 40)),
        "n_embd": 4 * int(rng.choice([2, 4, 8])),
        "n_layer": int(rng.integers(1, 4)),
        "n_head": int(rng.choice([2, 4])),
        "n_positions": 10 + LONGEST,
        "pad_token_id": int(rng.choice([pad, eos])),
        "eos_token_id": eos,
        "bos_token_id": 1,
    }


def tilted(model, rng, table, norm):
    """With random weights, and a last norm that leans to the end token: or few would ever end."""
    import torch

    randomize(model, rng, rng.choice([0.2, 0.4]))
    with torch.no_grad():
        end = table.weight[model.config.eos_token_id]
        norm.bias += rng.uniform(0, 3) * end / (end @ end)
    return model


def randomize(model, rng, std):
    import torch

    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" in name and not p.requires_grad:  # as exact as ours, no float32
                p.copy_(torch.from_numpy(nn.sinusoids(*p.shape, "halves")))
            elif "attn.bias" not in name or p.ndim == 1:  # no causal mask
                p.copy_(torch.from_numpy(std * rng.standard_normal(p.shape)))


class Family(NamedTuple):
    model: Any  # (rng) -> a model of transformers
    side: str  # on which its inputs are padded
    options: dict[str, Any]  # for transformers' generate alone


FAMILIES = {
    "gpt1": Family(gpt1, "left", {"use_cache": False}),  # transformers has none for it
    "gpt2": Family(gpt2, "left", {}),
    "marian": Family(marian, "right", {}),
    "bart": Family(bart, "right", {}),
    "t5": Family(t5, "right", {}),
}


def pair(family, rng, folder):
    """A random model of transformers and, out of its folder, the same one of ours."""
    theirs = FAMILIES[family].model(rng).eval()
    theirs.save_pretrained(folder)
    return theirs, pretrained.load(folder, dtype=np.float64)


def random_batch(rng, side, config):
    rows, width = rng.integers(1, 5), rng.integers(2, 9)
    ids = rng.integers(0, config.vocab_size, (rows, width))
    mask = np.arange(width) < rng.integers(1, width + 1, (rows, 1))
    mask[rng.integers(rows)] = True
    mask = mask if side == "right" else mask[:, ::-1]
    return np.where(mask, ids, config.pad_token_id), mask.astype(int)


def random_changes(rng, start, vocab, end):
    """What changes scores, and lengths; start: tokens that the sequence begins with."""
    new = int(rng.integers(3, LONGEST))
    options = {"max_length": start + new} if rng.random() < 0.5 else {"max_new_tokens": new}
    choices = {
        "min_length": (0.25, lambda: start + int(rng.integers(1, 12))),
        "min_new_tokens": (0.25, lambda: int(rng.integers(1, 12))),
        "forced_bos_token_id": (0.25, lambda: int(rng.integers(4, vocab))),
        "forced_eos_token_id": (0.3, lambda: end),
        "repetition_penalty": (0.3, lambda: float(rng.choice([0.7, 1.3, 2.0]))),
        "no_repeat_ngram_size": (0.3, lambda: int(rng.integers(2, 4))),
        "bad_words_ids": (0.2, lambda: rng.integers(4, vocab, (6, rng.integers(1, 3))).tolist()),
    }
    picked = {name: value() for name, (p, value) in choices.items() if rng.random() < p}
    return options | picked


def random_search(rng):
    beams = int(rng.integers(1, 7))
    options = {"num_beams": beams, "num_return_sequences": int(rng.integers(1, beams + 1))}
    if beams > 1:
        options["length_penalty"] = float(rng.choice([0.0, 1.0, 1.0, 2.0, -1.0, 0.6]))
        options["early_stopping"] = (False, True, "never")[rng.integers(3)]
    return options


@pytest.fixture
def in_float64(monkeypatch):
    """transformers cuts logits to what it calls float32: here that is float64, so that models that
    repeat themselves, whose sequences score nearly the same, can be compared."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch, "float", torch.float64)
    yield
    torch.set_default_dtype(before)


def their_generate(family, theirs, ids, mask, **options):
    import torch

    batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    output = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lengths that fit badly: they warn, and go on
        return theirs.generate(**batch, **FAMILIES[family].options, **options, **output)


def length_to_end(row, start, *end):
    """How many of a row's tokens there are up to an end token, which the prompt may hold too."""
    ends = np.flatnonzero(np.isin(row[start:], end))
    return start + ends[0] + 1 if len(ends) else len(row)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_scores_equal_those_of_transformers(family, seed, tmp_path, in_float64):
    """Four sets of options for each of 25 models of a family, many with several end tokens.

    What follows an end is not compared: transformers' beams fill up with the end token where the
    padding is 0.
    """
    import torch

    rng = np.random.default_rng(seed)
    theirs, ours = pair(family, rng, tmp_path)
    end, pad, vocab = (
        getattr(ours.config, name) for name in ("eos_token_id", "pad_token_id", "vocab_size")
    )
    for _ in range(4):
        ids, mask = random_batch(rng, FAMILIES[family].side, ours.config)
        start = 1 if ours.is_encoder_decoder else ids.shape[1]
        options = random_changes(rng, start, vocab, end) | random_search(rng)
        ends = [end, *rng.integers(4, vocab, rng.integers(3)).tolist()]
        if len(ends) > 1:
            options["eos_token_id"] = ends
        expected = their_generate(family, theirs, ids, mask, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "min_new_tokens .* is more than max_new_tokens")
            warnings.filterwarnings("ignore", "beams found")
            made = ours.generate(ids, mask, return_scores=True, **options)
        sequences = expected.sequences.numpy()
        assert made.sequences.shape == sequences.shape, options
        lengths = [length_to_end(row, start, *ends) for row in sequences]
        found = np.ones(len(sequences), bool)
        if options["num_beams"] > 1:  # a dead beam goes on there, with a score of its own
            scores = expected.sequences_scores.numpy()
            found = scores > -1e6
            scores = np.where(found, scores, -np.inf)
        for row, other, n in compress(zip(made.sequences, sequences, lengths, strict=True), found):
            assert row[:n].tolist() == other[:n].tolist(), options
            assert set(row[n:]) <= {pad}
        if options["num_beams"] == 1:
            logs = torch.stack(expected.logits, 1).log_softmax(-1).numpy()
            scores = np.take_along_axis(logs, sequences[:, start:, None], 2)[:, :, 0]
            for row, n in zip(scores, lengths, strict=True):
                row[n - start :] = 0
        assert_allclose(made.scores, scores, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_drawn_from_the_probabilities_of_transformers(
    family, seed, tmp_path, in_float64
):
    """At each step of what transformers draws: its logits, changed by our options and by its."""
    import torch

    rng = np.random.default_rng(seed)
    theirs, ours = pair(family, rng, tmp_path)
    ids, mask = random_batch(rng, FAMILIES[family].side, ours.config)
    start = 1 if ours.is_encoder_decoder else ids.shape[1]
    end, vocab = ours.config.eos_token_id, ours.config.vocab_size
    options = random_changes(rng, start, vocab, end)
    if seed % 2:
        options["eos_token_id"] = [end, int(rng.integers(4, vocab))]
    options |= {
        "do_sample": True,
        "num_return_sequences": 3,
        "temperature": float(rng.uniform(0.3, 2)),
        "top_k": int(rng.choice([0, 3, vocab // 2, 50])),
        "top_p": float(rng.choice([1.0, rng.uniform(0.1, 1)])),
    }
    torch.manual_seed(seed)
    expected = their_generate(family, theirs, ids, mask, **options)
    sequences = expected.sequences.numpy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "min_new_tokens .* is more than max_new_tokens")
        config = GenerationConfig.of(ours.config, options, ours.generation_config)
    length = config.max_length or start + config.max_new_tokens
    real = None if ours.is_encoder_decoder else np.repeat(mask == 1, 3, 0)
    changes = processors(config, start, length, real)
    assert len(expected.scores) > 0
    for n, (logits, scores) in enumerate(zip(expected.logits, expected.scores, strict=True), start):
        changed = logits.numpy()
        for change in changes:
            changed = change(sequences[:, :n], changed)
        made = probabilities(changed, config.temperature, config.top_k, config.top_p)
        assert_allclose(made, scores.softmax(-1).numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", FAMILIES)
def test_generation_follows_the_folders_settings_as_transformers_does(family, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, ours = pair(family, rng, tmp_path)
    vocab, end = ours.config.vocab_size, ours.config.eos_token_id
    words = rng.integers(4, vocab, (6, 1)).tolist() + rng.integers(4, vocab, (20, 2)).tolist()
    settings = {"num_beams": 3, "max_length": 12, "length_penalty": 0.5, "bad_words_ids": words}
    theirs.generation_config.update(**settings)
    theirs.save_pretrained(tmp_path)
    ours = pretrained.load(tmp_path, dtype=np.float64)
    assert settings.items() <= ours.generation_config.items()
    ids, mask = random_batch(rng, FAMILIES[family].side, ours.config)
    expected = their_generate(family, theirs, ids, mask).sequences.numpy()
    made = ours.generate(ids, mask)
    start = 1 if ours.is_encoder_decoder else ids.shape[1]
    assert made.shape == expected.shape
    for row, other in zip(made, expected, strict=True):
        n = length_to_end(other, start, end)
        assert row[:n].tolist() == other[:n].tolist()
