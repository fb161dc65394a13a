"""Marian (Junczys-Dowmunt et al. 2018) as Hugging Face has it: the translators of OPUS-MT.

The Transformer of 2017 with other choices: sinusoids in halves, SiLU, a bias on the logits, a
decoder that starts with the padding token, and other numbers to start from.  So the class only
says what its files look like; everything else is the Transformer's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from tinyfm.models.transformer import Transformer, TransformerConfig
from tinyfm.nn import ACTIVATIONS, without_memory
from tinyfm.renames import Rename


@dataclass
class MarianConfig(TransformerConfig):
    """Hugging Face's fields; the defaults are those of the published opus-mt models.

    One table serves source, target and output: the fields that say otherwise are refused.
    """

    model_type: ClassVar[str] = "marian"

    vocab_size: int = 58101
    decoder_vocab_size: int | None = None
    activation_function: str = field(default="swish", metadata={"choices": tuple(ACTIVATIONS)})
    label_smoothing: float = 0.0
    init_std: float = 0.02
    pad_token_id: int = field(default=58100, metadata={"least": 0})
    bos_token_id: int | None = field(default=None, metadata={"least": 0})
    eos_token_id: int = field(default=0, metadata={"least": 0})
    decoder_start_token_id: int = field(default=58100, metadata={"least": 0})
    forced_eos_token_id: int | None = field(default=0, metadata={"least": 0})
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True

    positions: str = field(default="sinusoidal_halves", init=False)
    share_embeddings: bool = field(default=True, init=False)
    final_logits_bias: bool = field(default=True, init=False)
    norm_first: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_table = self.share_encoder_decoder_embeddings and self.tie_word_embeddings
        if not one_table or self.decoder_vocab_size not in (None, self.vocab_size):
            raise ValueError(
                "share_encoder_decoder_embeddings, tie_word_embeddings and decoder_vocab_size do "
                "not give one table for source, target and output; no other kind can be opened"
            )


# Where the d_model channels of a parameter are, by the end of its name: in its columns, in nothing,
# and in all others in the rows.
COLUMNS = {"embedding.weight", "qkv.weight", "q.weight", "kv.weight", "up.weight"}
NEITHER = {"final_logits_bias", "qkv.bias", "q.bias", "kv.bias", "up.bias"}


# The parts of a layer, and what files of Marian and of BART call them.
LAYER = {
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.out_proj",),
    "attention_norm": ("self_attn_layer_norm",),
    "cross.q": ("encoder_attn.q_proj",),
    "cross.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross.out": ("encoder_attn.out_proj",),
    "cross_norm": ("encoder_attn_layer_norm",),
    "feed_forward.up": ("fc1",),
    "feed_forward.down": ("fc2",),
    "feed_forward_norm": ("final_layer_norm",),
}
FINAL_LOGITS_BIAS = Rename(
    "final_logits_bias",
    "final_logits_bias",
    split=lambda bias: [bias[None]],  # (V,) here, (1, V) in files
    join=lambda row: row[0],
    optional=True,
)


def body(prefix: str) -> tuple[Rename, ...]:
    """The table of the embedding and the layers, whose names in files begin with the prefix."""
    copies = [f"{prefix}encoder.embed_tokens", f"{prefix}decoder.embed_tokens", "lm_head"]
    layers = (
        Rename(f"*.layers.*.{own}", *(f"{prefix}*.layers.*.{name}" for name in names))
        for own, names in LAYER.items()
    )
    return (Rename("embedding", f"{prefix}shared", copies=copies), *layers)


class MarianMTModel(Transformer):
    """The Transformer that opens and writes Marian folders."""

    config_class = MarianConfig
    base_model_prefix = "model"
    unused = ("model.*.embed_positions.weight",)  # the sinusoids, which are computed
    renames = (*body("model."), FINAL_LOGITS_BIAS)

    @classmethod
    def from_transformer(cls, model: Transformer) -> Self:
        """The same function as a Marian model, so that a Transformer can be saved for others.

        The d_model channels may stand in any order, if every matrix agrees on it.  With the even
        ones before the odd ones the paper's sinusoids are Marian's.

        ValueError for what Marian has not: learned positions, separate tables, norms first.
        """
        config = model.config
        if config.positions != "sinusoidal" or not config.share_embeddings or config.norm_first:
            raise ValueError(
                "a Marian model has sinusoidal positions, one table (share_embeddings) and norms "
                "that come last (norm_first=False); this Transformer has not"
            )
        values = config.to_dict() | {"init_std": MarianConfig.init_std, "forced_eos_token_id": None}
        with without_memory():
            result = cls(MarianConfig.from_dict(values))
        order = [*range(0, config.d_model, 2), *range(1, config.d_model, 2)]
        state = result.state_dict()
        for name, array in model.state_dict().items():
            ending = ".".join(name.split(".")[-2:])
            if ending in COLUMNS:
                array = array[:, order]
            elif ending not in NEITHER:
                array = array[order]
            state[name] = array
        result.allocate(state, model.embedding.weight.dtype)
        return result.train(model.training)
