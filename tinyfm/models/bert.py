"""BERT, "Pre-training of Deep Bidirectional Transformers" (Devlin et al. 2018).

    [CLS] a [SEP] b [SEP] -> LN(word + position + segment) -> encoder layers -> a vector a token

Every position sees all others, but for padding.  In pretraining the loss is at the masked words
and, through the pooled [CLS], at the question whether b follows a; a fine-tuned model has one small
layer on the same vectors.  RoBERTa and DistilBERT are this model with other choices (roberta.py,
distilbert.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from tinyfm import masks, nn, ops
from tinyfm.autograd import Tensor, raw
from tinyfm.backend import Array, array_module, host
from tinyfm.data import IGNORE_INDEX
from tinyfm.models.heads import choices_of, classification_loss, sequence_loss, span_loss
from tinyfm.models.output import ModelOutput
from tinyfm.pretrained import ClassifierConfig, PreTrainedModel
from tinyfm.renames import Rename, below


@dataclass
class BertConfig(ClassifierConfig):
    """Hugging Face's fields; the defaults are the base model's."""

    model_type: ClassVar[str] = "bert"

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = field(default="gelu", metadata={"choices": tuple(nn.ACTIVATIONS)})
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None  # as hidden_dropout_prob
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = field(default=0, metadata={"least": 0})
    tie_word_embeddings: bool = True
    is_decoder: bool = False
    add_cross_attention: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("is_decoder", "add_cross_attention"):
            if getattr(self, name):
                raise ValueError(f"{name} is True: only encoders, which look both ways, are opened")

    @classmethod
    def base(cls, **changes: Any) -> Self:
        """12 layers, 768 wide, 12 heads; 110 million parameters (section 3)."""
        return cls(**changes)

    @classmethod
    def large(cls, **changes: Any) -> Self:
        """24 layers, 1024 wide, 16 heads; "340" million parameters, by count 335 (section 3)."""
        sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
        return cls(**{**sizes, "intermediate_size": 4096, **changes})

    # All that the model asks a config about; other families answer from fields of other names.

    def layer(self) -> nn.LayerConfig:
        """What the layers are made of."""
        return nn.LayerConfig(
            d_model=self.hidden_size,
            num_heads=self.num_attention_heads,
            d_ff=self.intermediate_size,
            dropout=self.hidden_dropout_prob,
            attention_dropout=self.attention_probs_dropout_prob,
            activation=self.hidden_act,
            eps=self.layer_norm_eps,
            init=nn.normal(self.initializer_range),
        )

    def switches(self) -> Switches:
        dropout = self.classifier_dropout
        return Switches(
            num_layers=self.num_hidden_layers,
            segments=self.type_vocab_size,
            mlm_activation=self.hidden_act,
            classifier_dropout=self.hidden_dropout_prob if dropout is None else dropout,
        )


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What tells BERT, RoBERTa and DistilBERT apart besides the layers; the defaults are BERT's."""

    num_layers: int
    segments: int  # how many token_type_ids tell apart; 0: there are none
    positions_skip_padding: bool = False  # and begin after pad_token_id
    mlm_activation: str = "gelu"
    pooler_activation: str = "tanh"
    classifier_dropout: float = 0.1
    token_dropout: float | None = None  # as classifier_dropout
    choice_dropout: float | None = None  # the same
    pooler_dropout: float = 0.0  # before the pooler, where a sequence is classified
    answer_dropout: float = 0.0


class Embeddings(nn.Module):
    """LN(word + position + segment), then dropout (section 3, figure 2)."""

    def __init__(self, config: BertConfig) -> None:
        layer, switches = config.layer(), config.switches()
        d, init, pad = layer.d_model, layer.init, config.pad_token_id
        self.skip_padding = pad if switches.positions_skip_padding else None
        self.word = nn.Embedding(config.vocab_size, d, pad, init)
        self.position = nn.Embedding(config.max_position_embeddings, d, self.skip_padding, init)
        self.token_type = (
            nn.Embedding(switches.segments, d, None, init) if switches.segments else None
        )
        self.norm = nn.LayerNorm(d, layer.eps)
        self.dropout = nn.Dropout(layer.dropout)

    def forward(
        self, input_ids: np.ndarray, token_type_ids: Any = None, position_ids: Any = None
    ) -> Tensor:
        """Ids (B, T) -> (B, T, d); without token_type_ids all are of segment 0."""
        if position_ids is None:
            position_ids = self.positions(input_ids)
        x = self.word(input_ids) + self.position(host(position_ids))
        if self.token_type is not None:
            if token_type_ids is None:
                token_type_ids = np.zeros_like(input_ids)
            x = x + self.token_type(host(token_type_ids))
        elif token_type_ids is not None:
            raise ValueError("token_type_ids: this model has no segments; leave them out")
        return self.dropout(self.norm(x))

    def positions(self, input_ids: np.ndarray) -> np.ndarray:
        """0, 1, ...; or, skipping padding, pad + 1, pad + 2, ... for words and pad for padding."""
        if self.skip_padding is None:
            places = np.arange(input_ids.shape[1])[None]
        else:
            words = input_ids != self.skip_padding
            places = np.cumsum(words, 1) * words + self.skip_padding
        if (last := places.max(initial=0)) >= len(self.position.weight):
            first = 0 if self.skip_padding is None else self.skip_padding + 1
            raise ValueError(
                f"input_ids are {last + 1 - first} tokens long, and the model takes "
                f"{len(self.position.weight) - first}"
            )
        return places


class Pooler(nn.Module):
    """A vector for the whole text, out of that of its first token."""

    def __init__(self, config: BertConfig, dropout: float = 0.0) -> None:
        layer = config.layer()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(layer.d_model, layer.d_model, init=layer.init)
        self.activation = {"tanh": ops.tanh, "relu": ops.relu}[config.switches().pooler_activation]

    def forward(self, hidden: Tensor) -> Tensor:
        return self.activation(self.dense(self.dropout(hidden[:, 0])))


BODY = (
    Rename("embeddings.word", "embeddings.word_embeddings"),
    Rename("embeddings.position", "embeddings.position_embeddings"),
    Rename("embeddings.token_type", "embeddings.token_type_embeddings"),
    Rename("embeddings.norm", "embeddings.LayerNorm"),
    Rename(
        "encoder.layers.*.attention.qkv",
        "encoder.layer.*.attention.self.query",
        "encoder.layer.*.attention.self.key",
        "encoder.layer.*.attention.self.value",
    ),
    Rename("encoder.layers.*.attention.out", "encoder.layer.*.attention.output.dense"),
    Rename("encoder.layers.*.attention_norm", "encoder.layer.*.attention.output.LayerNorm"),
    Rename("encoder.layers.*.feed_forward.up", "encoder.layer.*.intermediate.dense"),
    Rename("encoder.layers.*.feed_forward.down", "encoder.layer.*.output.dense"),
    Rename("encoder.layers.*.feed_forward_norm", "encoder.layer.*.output.LayerNorm"),
)
POOLER = Rename("pooler.dense", "pooler.dense")
# What files hold of tasks that are not the class's own.
OTHER_HEADS = ("cls.**", "classifier.**", "qa_outputs.**")


class BertModel(PreTrainedModel):
    """The encoder and, unless left out, the pooler."""

    config_class: ClassVar[type[Any]] = BertConfig
    base_model_prefix = "bert"
    renames: tuple[Rename, ...] = BODY
    unused: tuple[str, ...] = ("embeddings.position_ids", "pooler.**", *OTHER_HEADS)
    task_head = ("pooler.**",)  # models of masked words have none

    def __init__(self, config: Any, pooler: bool = True, pooler_dropout: float = 0.0) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = nn.Encoder(config.layer(), config.switches().num_layers)
        self.pooler = Pooler(config, pooler_dropout) if pooler else None

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        token_type_ids: Array | None = None,
        position_ids: Array | None = None,
        output_attentions: bool = False,
    ) -> ModelOutput:
        """Ids (B, T) -> .last_hidden_state (B, T, d), .pooler_output (B, d).

        attention_mask (B, T): 1 for tokens, 0 for padding; or a Mask.
        output_attentions: adds .attentions, an array (B, H, T, T) for each layer.
        """
        input_ids = host(input_ids)
        if input_ids.ndim != 2:
            raise ValueError(f"input_ids are {input_ids.shape}: they must be (batch, length)")
        weights: list[Array] | None = [] if output_attentions else None
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        mask = masks.of_tokens(attention_mask, raw(self.embeddings.word.weight))
        x = self.encoder(x, mask, weights=weights)
        fields: dict[str, Any] = {"last_hidden_state": x}
        if self.pooler is not None:
            fields["pooler_output"] = self.pooler(x)
        if output_attentions:
            fields["attentions"] = weights
        return ModelOutput(**fields)


class MaskedLMHead(nn.Module):
    """What stands here?  LN(gelu(h W)) E^T + b, with the embedding table E (section 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        if not config.tie_word_embeddings:
            raise ValueError("tie_word_embeddings is False: untied heads are not supported")
        layer = config.layer()
        self.dense = nn.Linear(layer.d_model, layer.d_model, init=layer.init)
        self.activation = nn.ACTIVATIONS[config.switches().mlm_activation]
        self.norm = nn.LayerNorm(layer.d_model, layer.eps)
        self.bias = nn.new_parameter((config.vocab_size,), nn.zeros)

    def transform(self, hidden: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(hidden)))

    def forward(self, hidden: Tensor, table: nn.Parameter) -> Tensor:
        """(..., d) -> logits (..., V)."""
        return ops.linear(self.transform(hidden), table, self.bias)

    def outputs(self, hidden: Tensor, table: nn.Parameter, labels: Array | None) -> tuple[Any, Any]:
        """(None, logits) without labels; with them ((loss, count), what makes the logits)."""
        if labels is None:
            return None, self(hidden, table)
        return self.loss(hidden, table, labels), lambda: self(hidden, table)

    def loss(self, hidden: Tensor, table: nn.Parameter, labels: Array) -> tuple[Tensor, int]:
        """The mean over the labelled positions, and their number; others do not enter the head."""
        labels, xp = host(labels), array_module(raw(hidden))
        if labels.shape != hidden.shape[:-1]:
            raise ValueError(f"labels are {labels.shape}, and there are {hidden.shape[:-1]} words")
        rows = np.flatnonzero(labels != IGNORE_INDEX)
        labelled = hidden.reshape(-1, hidden.shape[-1])[xp.asarray(rows)]
        targets = xp.asarray(labels.reshape(-1)[rows])
        loss = ops.linear_cross_entropy(self.transform(labelled), table, self.bias, targets)
        return loss, len(rows)


class WithBody(PreTrainedModel, base=True):
    """A model with the body `bert`, and a head that a subclass puts on it.

    pooled: the head looks at the pooled vector, and not at those of all positions.
    Calls take what BertModel takes, and `labels`; with these the result has .loss and .num_labels.
    """

    config_class: ClassVar[type[Any]] = BertConfig
    base_model_prefix = "bert"
    renames: tuple[Rename, ...] = below("bert", "bert", BODY)
    unused: tuple[str, ...] = ("bert.embeddings.position_ids", "bert.pooler.**", *OTHER_HEADS)
    pooled: ClassVar[bool] = False

    def __init__(self, config: Any, pooler_dropout: float = 0.0) -> None:
        super().__init__(config)
        self.bert = BertModel(config, pooler=self.pooled, pooler_dropout=pooler_dropout)

    def _new_linear(self, outputs: int) -> nn.Linear:
        layer = self.config.layer()
        return nn.Linear(layer.d_model, outputs, init=layer.init)


MASKED_LM = (
    Rename(
        "bert.embeddings.word",
        "bert.embeddings.word_embeddings",
        copies=["cls.predictions.decoder"],
    ),
    Rename("predictions.dense", "cls.predictions.transform.dense"),
    Rename("predictions.norm", "cls.predictions.transform.LayerNorm"),
    Rename("predictions.bias", "cls.predictions.bias", copies=["cls.predictions.decoder.bias"]),
)


class BertForMaskedLM(WithBody):
    """The hidden words: labels (B, T), -100 where no word is hidden; .logits (B, T, V)."""

    renames = (*MASKED_LM, *WithBody.renames)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.predictions = MaskedLMHead(config)

    def forward(self, *inputs: Any, labels: Array | None = None, **options: Any) -> ModelOutput:
        output = self.bert(*inputs, **options)
        table = self.bert.embeddings.word.weight
        loss, logits = self.predictions.outputs(output.last_hidden_state, table, labels)
        return output.extended(loss, logits=logits)


class BertForPreTraining(WithBody):
    """The hidden words, and whether the second segment follows the first (section 3.1)."""

    pooled = True
    renames = (*MASKED_LM, Rename("next_sentence", "cls.seq_relationship"), *WithBody.renames)
    task_head = ("next_sentence.**", "bert.pooler.**")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.predictions = MaskedLMHead(config)
        self.next_sentence = self._new_linear(2)

    def forward(
        self,
        *inputs: Any,
        labels: Array | None = None,
        next_sentence_label: Array | None = None,
        **options: Any,
    ) -> ModelOutput:
        """labels (B, T): the hidden words, -100 elsewhere; next_sentence_label (B,): 0 = follows.

        .prediction_logits (B, T, V), .seq_relationship_logits (B, 2).  The loss is the sum of the
        means whose labels are given; num_labels counts the hidden words, or else the pairs.  So a
        mean over batches, as in accumulation, weighs the pairs' part by the words of their batch.
        """
        output = self.bert(*inputs, **options)
        table = self.bert.embeddings.word.weight
        loss, words = self.predictions.outputs(output.last_hidden_state, table, labels)
        follows = self.next_sentence(output.pooler_output)
        if next_sentence_label is not None:
            pairs = classification_loss(follows, next_sentence_label)
            loss = pairs if loss is None else (loss[0] + pairs[0], loss[1])
        return output.extended(loss, prediction_logits=words, seq_relationship_logits=follows)


class BertForSequenceClassification(WithBody):
    """A class, or with one label a number, for each text or pair: labels (B,), .logits (B, C)."""

    pooled = True
    task_head = ("classifier.**", "bert.pooler.**")

    def __init__(self, config: Any) -> None:
        switches = config.switches()
        super().__init__(config, switches.pooler_dropout)
        self.dropout = nn.Dropout(switches.classifier_dropout)
        self.classifier = self._new_linear(config.num_labels)

    def forward(self, *inputs: Any, labels: Array | None = None, **options: Any) -> ModelOutput:
        output = self.bert(*inputs, **options)
        logits = self.classifier(self.dropout(output.pooler_output))
        loss = None if labels is None else sequence_loss(logits, labels)
        return output.extended(loss, logits=logits)


class BertForMultipleChoice(WithBody):
    """The right one of C continuations (section 4.4): labels (B,), .logits (B, C).

    All inputs are (B, C, T).
    """

    pooled = True
    task_head = ("classifier.**", "bert.pooler.**")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        switches = config.switches()
        choice_dropout, other = switches.choice_dropout, switches.classifier_dropout
        self.dropout = nn.Dropout(other if choice_dropout is None else choice_dropout)
        self.classifier = self._new_linear(1)

    def forward(
        self,
        input_ids: Array,
        attention_mask: Array | None = None,
        token_type_ids: Array | None = None,
        position_ids: Array | None = None,
        labels: Array | None = None,
        output_attentions: bool = False,
    ) -> ModelOutput:
        batch, choices, _ = choices_of(input_ids)
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        flat = (None if x is None else host(x).reshape(batch * choices, -1) for x in inputs)
        output = self.bert(*flat, output_attentions=output_attentions)
        scores = self.classifier(self.dropout(output.pooler_output)).reshape(batch, choices)
        loss = None if labels is None else classification_loss(scores, labels)
        return output.extended(loss, logits=scores)


class BertForTokenClassification(WithBody):
    """A class for each token (section 5.3): labels (B, T), -100 is ignored; .logits (B, T, C)."""

    task_head = ("classifier.**",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        switches = config.switches()
        token_dropout, other = switches.token_dropout, switches.classifier_dropout
        self.dropout = nn.Dropout(other if token_dropout is None else token_dropout)
        self.classifier = self._new_linear(config.num_labels)

    def forward(self, *inputs: Any, labels: Array | None = None, **options: Any) -> ModelOutput:
        output = self.bert(*inputs, **options)
        logits = self.classifier(self.dropout(output.last_hidden_state))
        loss = None if labels is None else classification_loss(logits, labels)
        return output.extended(loss, logits=logits)


class BertForQuestionAnswering(WithBody):
    """Where in the text the answer starts and ends (section 4.2)."""

    task_head = ("qa_outputs.**",)

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.switches().answer_dropout)
        self.qa_outputs = self._new_linear(2)

    def forward(
        self,
        *inputs: Any,
        start_positions: Array | None = None,
        end_positions: Array | None = None,
        **options: Any,
    ) -> ModelOutput:
        """start_positions, end_positions (B,): tokens; .start_logits, .end_logits (B, T).

        num_labels counts the texts of which the start or the end is not cut.  A mean over batches,
        as in accumulation, weighs both parts by it, also where more starts are left than ends.
        """
        output = self.bert(*inputs, **options)
        logits = self.qa_outputs(self.dropout(output.last_hidden_state))
        start, end = logits[..., 0], logits[..., 1]
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(start, end, start_positions, end_positions)
        return output.extended(loss, start_logits=start, end_logits=end)
