"""Language modelling: every token is predicted from those before it.

A text of L tokens gives L - 1 losses.  What differs between pretraining, chats and prefix LMs is
which of them count, and that is said by labels: the token itself where it counts, -100 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyfm.data import IGNORE_INDEX

Ids = npt.NDArray[np.int64]


def shifted(labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """What each position has to predict: the label of the next one.  The one place of the shift.

    labels (..., T), as long as the input and in line with it -> (..., T): position t gets the label
    of t + 1, the last position -100.  So the label of position 0 never matters, and data pipelines
    never shift: labels are the input's own ids.
    """
    labels = np.asarray(labels)
    targets = np.full_like(labels, IGNORE_INDEX)
    targets[..., :-1] = labels[..., 1:]
    return targets


# -- documents -------------------------------------------------------------------------------------


def pack(
    documents: Iterable[Sequence[int]],
    block: int,
    end_id: int,
    remainder: str = "drop",
    rest: Sequence[int] = (),
) -> Any:
    """Documents one after the other, an end token after each, cut into blocks without padding.

    Returns (N, block) int64; what does not fill a block is dropped, or with remainder="carry"
    returned as well, (R,) with R < block, for the next call to begin with: its `rest`, which stands
    before the documents as it is.  Packed in pieces, documents give the blocks that they give at
    once.  Positions are not reset and there is no mask between documents (GPT-2 and GPT-3).

    ValueError: block below 2, of which no token could be predicted.  TypeError: ids that are no
    whole numbers.
    """
    if remainder not in ("drop", "carry"):
        raise ValueError(f"remainder is {remainder!r}: it must be 'drop' or 'carry'")
    if block < 2:
        raise ValueError(f"block is {block}: it must be at least 2")
    parts = [np.append(_whole(ids), end_id) for ids in documents]
    stream = np.concatenate([_whole(rest), *parts])
    whole = len(stream) // block * block
    blocks = stream[:whole].reshape(-1, block)
    return blocks if remainder == "drop" else (blocks, stream[whole:])


def _whole(ids: npt.ArrayLike) -> Ids:
    """Token ids (L,), or a TypeError."""
    given = np.asarray(ids)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"the ids are {given.dtype}: token ids are whole numbers")
    return given.astype(np.int64)


def windows(ids: npt.ArrayLike, block: int) -> tuple[Ids, Ids]:
    """All pieces of a text of `block` tokens, and for each the same piece one token further on.

    ids (L,) -> inputs, targets (L - block, block), views: the targets are shifted already, for
    loops that sample from one long text, and are no labels of a model, which shifts by itself.

    ValueError: fewer than block + 1 tokens, or block below 1.
    """
    ids = np.asarray(ids)
    if block < 1:
        raise ValueError(f"block is {block}: it must be at least 1")
    if len(ids) <= block:
        raise ValueError(
            f"{len(ids)} tokens are too few for a block of {block}, which needs {block + 1}; give "
            "more text or a smaller block"
        )
    pieces = np.lib.stride_tricks.sliding_window_view(ids, block)
    return pieces[:-1], pieces[1:]


# -- prompts and answers ---------------------------------------------------------------------------


def sft_example(
    prompt: Sequence[int], response: Sequence[int], end_id: int
) -> tuple[list[int], list[int]]:
    """A prompt with its response and the end token -> ids, and labels on the response alone.

    Supervised fine-tuning: the loss is on the response and the end token.  What is not labelled
    follows from the prompt's length, whatever tokens stand in it.
    """
    answer = [*response, end_id]
    return [*prompt, *answer], [IGNORE_INDEX] * len(prompt) + answer


ROLES = ("system", "user", "assistant")


def chat_parts(messages: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, bool]]:
    r"""A conversation in pieces of text, each with whether the assistant says it.

    "User: What is it?\n", "Assistant:", " A question.", and so on; an end token follows each piece
    of the assistant.  ValueError: another role.  TypeError: a content that is no text.
    """
    for message in messages:
        role, content = message["role"], message["content"]
        if role not in ROLES:
            raise ValueError(f"role {role!r} is unknown: use one of {', '.join(ROLES)}")
        if not isinstance(content, str):
            raise TypeError(f"the content of a message is {content!r}: it must be a text")
        if role == "assistant":
            yield "Assistant:", False
            yield f" {content}", True
        else:
            yield f"{role.capitalize()}: {content}\n", False


def chat_example(
    messages: Iterable[Mapping[str, str]], encode: Callable[[str], Sequence[int]], end_id: int
) -> tuple[list[int], list[int]]:
    """A conversation -> ids and labels; every turn of the assistant is labelled, with its end.

    messages: {"role": "system" | "user" | "assistant", "content": text}, in order.
    encode: text -> ids.  Each piece is encoded by itself, so that no label depends on how two of
        them would run together.
    """
    ids: list[int] = []
    labels: list[int] = []
    for text, said in chat_parts(messages):
        piece = [*encode(text), end_id] if said else list(encode(text))
        ids += piece
        labels += piece if said else [IGNORE_INDEX] * len(piece)
    return ids, labels


def chat_prompt(
    messages: Iterable[Mapping[str, str]], encode: Callable[[str], Sequence[int]], end_id: int
) -> list[int]:
    """The ids after which the assistant's next turn comes, as `chat_example` has them."""
    ids, _ = chat_example(messages, encode, end_id)
    return [*ids, *encode("Assistant:")]


# -- prefix LM -------------------------------------------------------------------------------------


def prefix_lm_example(
    ids: Sequence[int], prefix: int | None = None, rng: np.random.Generator | None = None
) -> tuple[list[int], list[int], int]:
    """A text, labels on what follows its prefix, and the prefix's length for masks.prefix.

    prefix: how many tokens see each other; without it rng draws 1 to L - 1, each as likely (Raffel
        et al. 2020, section 3.2.1).  The last of them predicts the first label.
    """
    if prefix is None:
        if rng is None:
            raise ValueError("give the prefix's length, or rng to draw it")
        if len(ids) < 2:
            raise ValueError(f"a text of {len(ids)} tokens cannot be split; it needs 2")
        prefix = int(rng.integers(1, len(ids)))
    if not isinstance(prefix, int | np.integer) or isinstance(prefix, bool):
        raise TypeError(f"prefix is {prefix!r}: it must be a whole number")
    if not 0 <= prefix <= len(ids):
        raise ValueError(f"prefix is {prefix}: it must be between 0 and the {len(ids)} tokens")
    return list(ids), [IGNORE_INDEX] * prefix + list(ids[prefix:]), prefix
