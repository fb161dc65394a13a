"""GPT: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), GPT-2
(Radford et al. 2019) and GPT-3 (Brown et al. 2020).

    ids -> word + position -> layers that see what is to the left -> h E^T -> the next word

One decoder without a source.  GPT-1 has its norms after the residual sums, GPT-2 before them and
one more at the end; GPT-3 is GPT-2 in eight sizes.  (In the paper every second layer of GPT-3 looks
at a band of positions only; that is not modelled here: all layers are dense.)  The loss is at every
position; a fine-tuned model has one small layer on the vector of the last token, which alone has
seen the whole text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from tinyfm import masks, nn, ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, host
from tinyfm.data import IGNORE_INDEX
from tinyfm.models.heads import at, choices_of, classification_loss, sequence_loss
from tinyfm.models.output import ModelOutput
from tinyfm.objectives import shifted
from tinyfm.pretrained import ClassifierConfig, PreTrainedModel
from tinyfm.renames import Rename, below

# Table 2.1 of Brown et al. 2020: layers, width, heads.  Two of its rows do not add up, since the
# heads would not fill the width: "1.3B" has 24 heads of 128 in 2048 there, and "13B" a width of
# 5140 for 40 heads of 128.
GPT3 = {
    "125M": (12, 768, 12), "350M": (24, 1024, 16), "760M": (24, 1536, 16), "1.3B": (24, 2048, 16),
    "2.7B": (32, 2560, 32), "6.7B": (32, 4096, 32), "13B": (40, 5120, 40),
    "175B": (96, 12288, 96),
}  # fmt: skip


@dataclass
class GPT2Config(ClassifierConfig):
    """Hugging Face's fields; the defaults are those of the smallest GPT-2."""

    model_type: ClassVar[str] = "gpt2"

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None  # 4 n_embd
    activation_function: str = field(
        default="gelu_new", metadata={"choices": tuple(nn.ACTIVATIONS)}
    )
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    summary_first_dropout: float = 0.1  # before the head that chooses
    # Other heads than the published one, which that head's class refuses.
    summary_type: str = "cls_index"
    summary_use_proj: bool = True
    summary_proj_to_labels: bool = True
    summary_activation: str | None = None
    both_orders: bool = False  # two texts are read in both orders, and the vectors added
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True
    bos_token_id: int | None = field(default=50256, metadata={"least": 0})
    eos_token_id: int | None = field(default=50256, metadata={"least": 0})
    pad_token_id: int | None = field(default=None, metadata={"least": 0})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale_attn_by_inverse_layer_idx:
            raise ValueError("scale_attn_by_inverse_layer_idx: no such model can be opened")
        if not self.tie_word_embeddings:
            raise ValueError("tie_word_embeddings is False: the head is always the word table")

    @classmethod
    def gpt1(cls, **changes: Any) -> OpenAIGPTConfig:
        """12 layers, 768 wide, 12 heads, context 512, norms last; 117 million parameters."""
        return OpenAIGPTConfig(**changes)

    @classmethod
    def small(cls, **changes: Any) -> Self:
        """12 layers, 768 wide, 12 heads; 124 million parameters ("117M" in the paper's table 2)."""
        return cls(**changes)

    @classmethod
    def medium(cls, **changes: Any) -> Self:
        """24 layers, 1024 wide, 16 heads; 355 million parameters ("345M")."""
        return cls(**{"n_layer": 24, "n_embd": 1024, "n_head": 16, **changes})

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """36 layers, 1280 wide, 20 heads; 774 million parameters ("762M")."""
        return cls(**{"n_layer": 36, "n_embd": 1280, "n_head": 20, **changes})

    @classmethod
    def xl(cls, **changes: Any) -> Self:
        """48 layers, 1600 wide, 25 heads; 1558 million parameters ("1542M")."""
        return cls(**{"n_layer": 48, "n_embd": 1600, "n_head": 25, **changes})

    @classmethod
    def gpt3(cls, size: str, **changes: Any) -> Self:
        """One of the eight sizes of GPT-3, from "125M" to "175B"; context 2048."""
        if size not in GPT3:
            raise ValueError(f"there is no GPT-3 of size {size!r}: take one of {', '.join(GPT3)}")
        layers, width, heads = GPT3[size]
        sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": 2048}
        return cls(**{**sizes, **changes})

    # All that the model asks a config about; GPT-1 answers from fields of other names.

    norm_first: ClassVar[bool] = True

    def activation(self) -> str:
        return self.activation_function

    def layer(self) -> nn.LayerConfig:
        """What the layers are made of.

        What is added to the residual starts smaller by the square root of how often that happens
        (GPT-2, section 2.3).
        """
        out_range = self.initializer_range
        if self.norm_first:
            out_range /= (2 * self.n_layer) ** 0.5
        return nn.LayerConfig(
            d_model=self.n_embd,
            num_heads=self.n_head,
            d_ff=self.n_inner or 4 * self.n_embd,
            dropout=self.resid_pdrop,
            attention_dropout=self.attn_pdrop,
            activation=self.activation(),
            eps=self.layer_norm_epsilon,
            norm_first=self.norm_first,
            scale=None if self.scale_attn_weights else 1.0,
            init=nn.normal(self.initializer_range),
            out_init=nn.normal(out_range),
        )


@dataclass
class OpenAIGPTConfig(GPT2Config):
    """GPT-1: Hugging Face's fields, and as defaults the published model."""

    model_type: ClassVar[str] = "openai-gpt"
    norm_first: ClassVar[bool] = False

    vocab_size: int = 40478
    n_positions: int = 512
    afn: str = field(default="gelu", metadata={"choices": ("gelu", "relu", "silu", "swish")})
    bos_token_id: int | None = field(default=None, metadata={"least": 0})
    eos_token_id: int | None = field(default=None, metadata={"least": 0})

    n_inner: int | None = field(default=None, init=False)
    activation_function: str = field(default="gelu_new", init=False)
    scale_attn_weights: bool = field(default=True, init=False)
    scale_attn_by_inverse_layer_idx: bool = field(default=False, init=False)

    def activation(self) -> str:
        """In this family "gelu" is the form with tanh, as in the published code."""
        return "gelu_new" if self.afn == "gelu" else self.afn


class State:
    """A generation in progress: the caches, and the mask, whose keys are all that will be made."""

    def __init__(self, caches: list[nn.LayerCache], mask: masks.Mask) -> None:
        self.caches, self.mask = caches, mask

    def reorder(self, rows: np.ndarray) -> None:
        """Go on with these rows (R,) of the running sequences."""
        for cache in self.caches:
            cache.reorder(rows)
        self.mask = self.mask.reorder(rows)

    def seen(self, ids: np.ndarray) -> masks.Mask:
        """The mask for the new ids (R, n): of the keys, those up to them exist by now."""
        if (keys := self.mask.keys) is None:
            return self.mask
        return replace(self.mask, keys=keys[:, : self.caches[0].own.length + ids.shape[1]])


def _transposed(array: np.ndarray) -> list[np.ndarray]:
    """Files keep the layers' matrices as (in, out), here they are (out, in); biases stay."""
    return [array.T]


def _table(tokens: str, positions: str) -> tuple[Rename, ...]:
    """The names in files; of the two tables they differ between the families."""
    matrices = {
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "feed_forward.up": "mlp.c_fc",
        "feed_forward.down": "mlp.c_proj",
    }
    return (
        Rename("tokens", tokens),
        Rename("positions", positions),
        *(
            Rename(
                f"decoder.layers.*.{own}",
                f"h.*.{name}",
                split=_transposed,
                join=lambda array: array.T,
            )
            for own, name in matrices.items()
        ),
        Rename("decoder.layers.*.attention_norm", "h.*.ln_1"),
        Rename("decoder.layers.*.feed_forward_norm", "h.*.ln_2"),
        Rename("decoder.norm", "ln_f"),
    )


def _with_head(table: tuple[Rename, ...]) -> tuple[Rename, ...]:
    """The table of a model with the body `transformer`; files may repeat the word table as a head,
    or have it there alone."""
    tokens = table[0].files[0]
    first = Rename("transformer.tokens", f"transformer.{tokens}", copies=["lm_head"])
    return (first, *below("transformer", "transformer", table))


GPT2_TABLE, GPT1_TABLE = _table("wte", "wpe"), _table("tokens_embed", "positions_embed")
Loss = tuple[Tensor, int]  # the mean, and of how many labels
BUFFERS = ("h.*.attn.bias", "h.*.attn.masked_bias", "position_ids")
OTHER_HEADS = ("score.**", "classifier.**", "qa_outputs.**", "multiple_choice_head.**")


class GPT2Model(PreTrainedModel):
    """The decoder without a head."""

    config_class: ClassVar[type[Any]] = GPT2Config
    base_model_prefix = "transformer"
    renames: tuple[Rename, ...] = (Rename("tokens", "wte", copies=["lm_head"]), *GPT2_TABLE)
    unused: tuple[str, ...] = (*BUFFERS, *OTHER_HEADS)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        init = nn.normal(config.initializer_range)
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd, init=init)
        self.positions = nn.LearnedPositions(config.n_positions, config.n_embd, init)
        self.dropout = nn.Dropout(config.embd_pdrop)
        self.decoder = nn.Decoder(config.layer(), config.n_layer, cross_attention=False)

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        token_type_ids: Array | None = None,
        position_ids: Array | None = None,
        caches: list[nn.LayerCache] | None = None,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """Ids (B, T) -> .last_hidden_state (B, T, d).

        attention_mask (B, T): 1 for tokens, 0 for padding; or a Mask, joined by & with the causal
            one, such as masks.prefix(lengths) for a prefix LM.  With caches it covers all keys.
        token_type_ids: words whose vectors are added to those of the tokens.
        position_ids: by default counted from each row's first token that is no padding.
        caches: from `self.decoder.caches`, filled by earlier positions; input_ids are the new ones.
        output_attentions: adds .attentions, an array (B, H, Tq, Tk) for each layer.
        """
        ids = host(input_ids)
        if ids.ndim != 2:
            raise ValueError(f"input_ids are {ids.shape}: they must be (batch, length)")
        start = caches[0].own.length if caches else 0
        if position_ids is None:
            position_ids = self._places(attention_mask, start, ids.shape[1])
        x = self.tokens(ids)
        x = x + self.positions(host(position_ids), raw(x))
        if token_type_ids is not None:
            x = x + self.tokens(host(token_type_ids))
        weights: tuple[list, list] = ([], [])
        x = self.decoder(
            self.dropout(x),
            masks.causal() & masks.of_tokens(attention_mask, raw(self.tokens.weight)),
            caches=caches,
            weights=weights if output_attentions else None,
        )
        fields: dict[str, Any] = {"attentions": weights[0]} if output_attentions else {}
        return ModelOutput(last_hidden_state=x, **fields)

    def _places(self, attention_mask: Any, start: int, length: int) -> np.ndarray:
        """(1 or B, length) the positions of the new tokens, padding not counted."""
        end = start + length
        if end > (limit := len(self.positions.weight)):
            raise ValueError(
                f"the text has {end} tokens and the model takes {limit} ({end} > {limit}): cut it"
            )
        real = _real(attention_mask)
        if real is None:
            return np.arange(start, end)[None]
        if real.shape[1:] != (end,):
            raise ValueError(
                f"attention_mask is {real.shape}: it must be (batch, {end}), cached tokens included"
            )
        return np.maximum(real.cumsum(1) - 1, 0)[:, start:end]


def _real(attention_mask: Any) -> np.ndarray | None:
    """(B, T) bool, on the host: which tokens are no padding; None: the mask does not tell."""
    keys = attention_mask.keys if isinstance(attention_mask, masks.Mask) else attention_mask
    return None if keys is None else host(keys) != 0


class WithBody(PreTrainedModel, base=True):
    """A model with the body `transformer` and a head that a subclass puts on it.

    Calls take what GPT2Model takes, and labels; with these the result has .loss and .num_labels.
    """

    config_class: ClassVar[type[Any]] = GPT2Config
    base_model_prefix = "transformer"
    renames: tuple[Rename, ...] = _with_head(GPT2_TABLE)
    unused: tuple[str, ...] = (*(f"transformer.{name}" for name in BUFFERS), *OTHER_HEADS)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.transformer = GPT2Model(config)

    def _lm_loss(self, hidden: Tensor, labels: Array, attention_mask: Any) -> Loss:
        """Each position predicts the label of the next one.

        Padding neither predicts nor is predicted: with padding on the left its last position would
        otherwise have to guess how the text begins.
        """
        table = self.transformer.tokens.weight
        labels, real = host(labels), _real(attention_mask)
        if real is None:
            targets = shifted(labels)
        else:
            targets = shifted(np.where(real, labels, IGNORE_INDEX))
            targets = np.where(real, targets, IGNORE_INDEX)
        loss = ops.linear_cross_entropy(
            hidden,
            table,
            None,
            array_module(raw(table)).asarray(targets),
            ignore_index=IGNORE_INDEX,
        )
        return loss, int((targets != IGNORE_INDEX).sum())

    def _logits(self, hidden: Tensor) -> Tensor:
        """h E^T: (..., d) -> (..., V)."""
        return ops.linear(hidden, self.transformer.tokens.weight)

    def _last(self, input_ids: np.ndarray, attention_mask: Any) -> np.ndarray:
        """(B,) where each row's last token that is no padding stands; 0 if there is none.

        By attention_mask, or else by pad_token_id.
        """
        real = _real(attention_mask)
        if real is None and (pad := self.config.pad_token_id) is not None:
            real = input_ids != pad
        if real is None and len(input_ids) > 1:
            raise ValueError(
                "where the texts end is not known: give an attention_mask, or set pad_token_id in "
                "the config"
            )
        places = np.arange(input_ids.shape[1])
        return np.broadcast_to(places if real is None else real * places, input_ids.shape).argmax(1)


def _flat(x: Any) -> Any:
    """(..., T), several texts each, as rows (N, T); None and a Mask stay as they are."""
    if x is None or isinstance(x, masks.Mask):
        return x
    return host(x).reshape(-1, host(x).shape[-1])


def _joint(task: Loss | None, words: Loss | None, weight: float) -> Loss | None:
    """The loss of a task and `weight` times that of its words (section 3.2), or the only one."""
    if task is None or words is None:
        return task or words
    return task[0] + weight * words[0], task[1]


class GPT2LMHeadModel(WithBody):
    """The next word: labels (B, T) are the ids themselves, -100 where they do not count.

    The shift is done here (objectives.shifted); what attention_mask calls padding does not count
    either.  .logits (B, T, V).
    """

    is_encoder_decoder = False

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        *inputs: Any,
        labels: Array | None = None,
        **options: Any,
    ) -> ModelOutput:
        output = self.transformer(input_ids, attention_mask, *inputs, **options)
        hidden = output.last_hidden_state
        if labels is None:
            return output.extended(None, logits=self._logits(hidden))
        loss = self._lm_loss(hidden, labels, attention_mask)
        return output.extended(loss, logits=lambda: self._logits(hidden))

    def begin(
        self, input_ids: Array, attention_mask: Array | None, rows: Array, max_length: int
    ) -> State:
        """See tinyfm.generation; the prompt itself comes with the first step.

        With masks.prefix in attention_mask the tokens of the prefix see each other, which they can
        only where they are read in one step, as a prompt is.
        """
        table = raw(self.transformer.tokens.weight)
        mask = masks.of_tokens(attention_mask, table).reorder(rows)
        if mask.keys is not None:
            made = array_module(mask.keys).ones((len(rows), max_length), bool)
            made[:, : mask.keys.shape[1]] = mask.keys
            mask = replace(mask, keys=made)
        return State(self.transformer.decoder.caches(len(rows), max_length), mask)

    def step(self, ids: Array, state: State) -> Array:
        output = self.transformer(ids, state.seen(ids), caches=state.caches)
        hidden = output.last_hidden_state
        return raw(self._logits(hidden[:, -1]))

    def position_limit(self) -> int:
        return self.config.n_positions


class GPT2ForSequenceClassification(WithBody):
    """A class, or with one label a number, for each text: labels (B,), .logits (B, C)."""

    task_head = ("score.**",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        init = nn.normal(config.initializer_range)
        self.score = nn.Linear(config.n_embd, config.num_labels, bias=False, init=init)

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        token_type_ids: Array | None = None,
        position_ids: Array | None = None,
        labels: Array | None = None,
        lm_labels: Array | None = None,
        lm_weight: float = 0.5,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """All inputs (B, T); or (B, N, T), of which the N vectors are added: for similarity both
        orders of two texts (GPT-1, section 3.3).

        lm_labels, as input_ids: adds lm_weight times the loss of language modelling, GPT-1's
            auxiliary objective (section 3.2), the mean over all labelled tokens.
        """
        shape = host(input_ids).shape
        given = (input_ids, attention_mask, token_type_ids, position_ids)
        inputs = [_flat(x) for x in given]
        output = self.transformer(*inputs, output_attentions=output_attentions)
        hidden = output.last_hidden_state
        vectors = at(hidden, self._last(*inputs[:2]))
        if len(shape) > 2:
            vectors = vectors.reshape(*shape[:-1], -1).sum(axis=1)
        logits = self.score(vectors)
        task = None if labels is None else sequence_loss(logits, labels)
        words = None
        if lm_labels is not None:
            words = self._lm_loss(hidden, _flat(lm_labels), inputs[1])
        return output.extended(_joint(task, words, lm_weight), logits=logits)


class ChoiceHead(nn.Module):
    """A score for the vector at one position of each text: the published head.

    ValueError: the config asks for another one, with an activation or without the matrix.
    """

    def __init__(self, config: Any) -> None:
        usual = {
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "summary_proj_to_labels": True,
            "summary_activation": None,
        }
        for name, value in usual.items():
            given = getattr(config, name)
            if given != value and (given or value):  # None and "" are both no activation
                raise ValueError(f"{name} is {given!r}: the head that chooses has {value!r} only")
        self.dropout = nn.Dropout(config.summary_first_dropout)
        self.summary = nn.Linear(config.n_embd, 1, init=nn.normal(config.initializer_range))

    def forward(self, vectors: Tensor) -> Tensor:
        return self.summary(self.dropout(vectors))


class GPT2DoubleHeadsModel(WithBody):
    """The next word, and the right one of C continuations (GPT-1, section 3.3): .logits
    (B, C, T, V), .mc_logits (B, C)."""

    task_head = ("multiple_choice_head.**",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.multiple_choice_head = ChoiceHead(config)

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        token_type_ids: Array | None = None,
        position_ids: Array | None = None,
        mc_token_ids: Array | None = None,
        labels: Array | None = None,
        mc_labels: Array | None = None,
        lm_weight: float = 0.5,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """All inputs (B, C, T).

        mc_token_ids (B, C): where each text is judged; by default at the last token that
            attention_mask does not call padding.
        labels (B, C, T): the words; mc_labels (B,): which text is right.

        .mc_loss and .lm_loss are there with their labels; .loss is the first plus lm_weight times
        the second (section 3.2), or the only one.
        """
        batch, choices, length = choices_of(input_ids)
        given = (input_ids, attention_mask, token_type_ids, position_ids)
        inputs = [_flat(x) for x in given]
        output = self.transformer(*inputs, output_attentions=output_attentions)
        hidden = output.last_hidden_state
        if mc_token_ids is not None:
            places = host(mc_token_ids).reshape(-1)
        elif _real(attention_mask) is not None:
            places = self._last(*inputs[:2])
        else:
            places = np.full(batch * choices, length - 1)
        scores = self.multiple_choice_head(at(hidden, places)).reshape(batch, choices)
        fields: dict[str, Any] = {"mc_logits": scores}
        words = task = None

        def logits() -> Tensor:
            return self._logits(hidden).reshape(batch, choices, length, -1)

        fields["logits"] = logits() if labels is None and mc_labels is None else logits
        if labels is not None:
            words = self._lm_loss(hidden, _flat(labels), inputs[1])
            fields["lm_loss"] = words[0]
        if mc_labels is not None:
            task = classification_loss(scores, mc_labels)
            fields["mc_loss"] = task[0]
        return output.extended(_joint(task, words, lm_weight), **fields)


class OpenAIGPTModel(GPT2Model):
    config_class = OpenAIGPTConfig
    renames = (Rename("tokens", "tokens_embed", copies=["lm_head"]), *GPT1_TABLE)


class OpenAIGPTLMHeadModel(GPT2LMHeadModel):
    config_class = OpenAIGPTConfig
    renames = _with_head(GPT1_TABLE)


class OpenAIGPTForSequenceClassification(GPT2ForSequenceClassification):
    config_class = OpenAIGPTConfig
    renames = _with_head(GPT1_TABLE)


class OpenAIGPTDoubleHeadsModel(GPT2DoubleHeadsModel):
    config_class = OpenAIGPTConfig
    renames = _with_head(GPT1_TABLE)
