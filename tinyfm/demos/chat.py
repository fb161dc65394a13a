r"""Teach a small GPT to follow instructions, and talk with it.

    python -m tinyfm.demos.chat                     learns from generated conversations, in English
    python -m tinyfm.demos.chat --model FOLDER      (on a terminal) a prompt; else answers each line
    python -m tinyfm.demos.chat --model FOLDER --message "Write house backwards."
    python -m tinyfm.demos.chat --train FILE        lines of {"messages": [{"role": ..., "content":
                                                    ...}, ...]}; system, user, assistant
    python -m tinyfm.demos.chat --model FOLDER --train generated    fine-tunes a language model

The loss is on what the assistant says and on the ends of its turns; --valid and --test files are
scored by that loss and by how many answers are exactly right. Without a file what is asked there
has not been seen: other words, sums and choices. Without --model a new model learns from nothing
but conversations: the generated ones are of so few kinds that they need no language first, and are
about one word, sum, choice or fact each, so that another question begins a new conversation.

An empty line, or /new, begins a new conversation. When one outgrows the model, its oldest turns are
left out. Each line of standard input is answered by one line, in which \n is a line end.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import tinyfm
from tinyfm.data import Example
from tinyfm.demos import cli, instructions
from tinyfm.demos.families import LANGUAGE
from tinyfm.demos.finetuning import (
    GENERATED,
    Command,
    Model,
    Score,
    Task,
    learns,
    new_training,
    run,
    shared_parser,
)
from tinyfm.demos.language import (
    ESCAPES,
    LEVELS,
    add_generation_options,
    can_stream,
    complete,
    generation_options,
    note_unknown,
)
from tinyfm.demos.learning import Option
from tinyfm.demos.modelling import outputs
from tinyfm.demos.records import Chat, Message, Records, read_chats
from tinyfm.errors import InputError
from tinyfm.objectives import chat_example, chat_parts, chat_prompt

COMMAND = Command(
    prog="chat", doc=__doc__ or "", save="chat-model", train='lines of {"messages": [...]}'
)
TOGETHER = 64  # answers that are made side by side for a score


def level(value: str) -> str:
    """What a token is."""
    if value not in LEVELS:
        raise argparse.ArgumentTypeError(f"give {' or '.join(LEVELS)}, not {value!r}")
    return value


def _training() -> Any:
    """A language model's sizes, without the one that follows from the others."""
    shared = new_training(
        sizes={"layers": (2, 4, 4), "hidden_size": (64, 128, 128)},
        epochs=(4, 3, 3),
        max_length=(256, 256, 1024),
        max_tokens=(1000, 2000, 2000),
        lr=(4e-3, 1e-3, 1e-4),
        dropout=(0.0, 0.1, 0.1),
    )
    options = {name: option for name, option in shared.options.items() if name != "ffn"}
    options["level"] = Option(
        level, ("char", "bpe", "bpe"), "of a new model: a token is a character (char), or a byte "
        "or a frequent run of bytes (bpe)"
    )  # fmt: skip
    return replace(shared, options=options, schedules=("cosine", "linear", "linear"))


TRAINING = _training()


def new_parser() -> cli.Parser:
    """The shared options, and what is said."""
    new = shared_parser(COMMAND, TRAINING)
    new.add_argument(
        "--message", type=cli.text, metavar="TEXT", help="answer this; without it, after --model, "
        "each line of standard input, or what is typed at a prompt",
    )  # fmt: skip
    add_generation_options(new, max_new_tokens=100, temperature=0.0)
    return new


# -- learning --------------------------------------------------------------------------------------


class Chatting(Task[Chat]):
    heads = ("LMHeadModel",)
    families = (LANGUAGE,)

    def read(self, path: str, args: argparse.Namespace, model: Any = None) -> Records[Chat]:
        return read_chats(path, skip=bool(args.skip_bad))

    def embedded(self) -> tuple[Records[Chat], dict[str, Records[Chat]]]:
        return instructions.records()

    def lines(self, records: Records[Chat]) -> list[str]:
        return [text for record in records for text, _ in chat_parts(record.messages)]

    def examples(self, records: Records[Chat], model: Model) -> list[Example]:
        """Of a conversation that is too long its last turns, and of a turn its end."""
        encode, end = remembering(records, model), model.tokenizer.eos_id
        made: list[Example] = []
        for record in records:
            messages = recent(up_to_last_answer(record.messages), encode, model.max_length)
            ids, labels = chat_example(messages, encode, end)
            kept = slice(-model.max_length, None)
            made.append({"input_ids": ids[kept], "labels": labels[kept]})
        return made

    def cut(self, records: Records[Chat], examples: list[Example], model: Model) -> int:
        encode, end = remembering(records, model), model.tokenizer.eos_id
        conversations = (up_to_last_answer(record.messages) for record in records)
        whole = (len(chat_example(messages, encode, end)[0]) for messages in conversations)
        return sum(length > model.max_length for length in whole)

    def score(self, records: Records[Chat], model: Model) -> Score:
        """The loss of the answers, and how many are made exactly as they are given, each after the
        true turns before it."""
        loss = count = 0
        for _, _, output in outputs(model.model, self.examples(records, model)):
            loss += output.loss.item() * output.num_labels
            count += output.num_labels
        right = exact_matches(records, model)
        asked = [record.kind for record in records for _ in answers(record)]
        found = Counter(kind for kind, hit in zip(asked, right, strict=True) if hit)
        numbers = {"answer_loss": loss / count, "exact_match": sum(right) / len(right)}
        shares = (f"{kind} {found[kind] / n:.0%}" for kind, n in Counter(asked).items() if kind)
        kinds = f": {', '.join(shares)}" if any(asked) else ""
        return Score(
            f"answer loss {numbers['answer_loss']:.3f}, exact match {numbers['exact_match']:.1%} "
            f"of {len(right)} answers{kinds}",
            numbers,
        )

    def check_asked(self, args: argparse.Namespace, model: Model) -> None:
        if model.tokenizer.eos_id is None:
            raise InputError(f"{args.model}: no token that ends an answer; give --train FILE too")
        if args.message is not None:
            if not args.message.strip():
                raise InputError("--message: no text; say something")
            Conversation(model, generation_options(args)).prompt(args.message, "--message")


def up_to_last_answer(messages: Sequence[Message]) -> Sequence[Message]:
    """Without what is said after it, from which nothing can be learnt."""
    last = max(i for i, message in enumerate(messages) if message["role"] == "assistant")
    return messages[: last + 1]


def answers(record: Chat) -> Iterator[tuple[Sequence[Message], str]]:
    """Each answer of the assistant, after the messages before it."""
    for i, message in enumerate(record.messages):
        if message["role"] == "assistant":
            yield record.messages[:i], message["content"]


def exact_matches(records: Sequence[Chat], model: Model) -> list[bool]:
    """For each answer whether the most probable tokens are its own, the end token included."""
    encode, end = remembering(records, model), model.tokenizer.eos_id
    wanted, prompts = [], []
    for record in records:
        for before, content in answers(record):
            answer = [*encode(f" {content}"), end][: model.max_length - 1]
            room = model.max_length - len(answer)
            wanted.append(answer)
            prompts.append(fitting_prompt(before, encode, end, room)[0][-room:])
    right = [False] * len(prompts)
    for rows in groups([*map(len, prompts)], [*map(len, wanted)], model.max_length):
        ids, mask = padded_left([prompts[i] for i in rows], end)
        most = max(len(wanted[i]) for i in rows)
        made = model.model.generate(
            ids, mask, max_new_tokens=most, do_sample=False, num_beams=1, eos_token_id=end
        )[:, ids.shape[1] :]
        for i, row in zip(rows, made.tolist(), strict=True):
            right[i] = row[: len(wanted[i])] == wanted[i]
    return right


def groups(prompts: Sequence[int], answers: Sequence[int], room: int) -> Iterator[list[int]]:
    """The indexes of prompts and answers of these lengths, in groups of at most TOGETHER of which
    the longest prompt and the longest answer fit into `room` one after the other; short ones
    first."""
    group: list[int] = []
    for i in sorted(range(len(prompts)), key=lambda i: prompts[i]):
        longest = max(answers[k] for k in (*group, i))
        if group and (len(group) == TOGETHER or prompts[i] + longest > room):
            yield group
            group = []
        group.append(i)
    if group:
        yield group


def padded_left(rows: Sequence[Sequence[int]], fill: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids (B, T) with padding before the shorter rows, and the mask (B, T) that tells it."""
    longest = max(map(len, rows))
    ids = np.array([[fill] * (longest - len(row)) + [*row] for row in rows])
    mask = np.array([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


# -- conversations as ids --------------------------------------------------------------------------

Encode = Callable[[str], Sequence[int]]


def remembering(records: Sequence[Chat], model: Model) -> Encode:
    """text -> ids of all pieces of the records, which are encoded at once."""
    pieces = {text for record in records for text, _ in chat_parts(record.messages)}
    texts = sorted(pieces | {"Assistant:"})
    return dict(zip(texts, model.tokenizer.encode_batch(texts), strict=True)).__getitem__


def recent(messages: Sequence[Message], encode: Encode, room: int) -> list[Message]:
    """The messages that fit into `room` tokens: the oldest turns are left out, but for those of the
    system at the beginning, and but for the last one of a user with what follows it.
    """
    said = [message["role"] == "system" for message in messages]
    first = said.index(False) if False in said else len(said)
    system, turns = list(messages[:first]), list(messages[first:])
    later = (i for i, message in enumerate(turns) if message["role"] != "assistant")
    kept = [*system, *turns]
    for start in later:
        if len(chat_example(kept, encode, 0)[0]) <= room:
            break
        kept = [*system, *turns[start:]]
    return kept


def fitting_prompt(
    messages: Sequence[Message], encode: Encode, end_id: int, room: int
) -> tuple[list[int], int]:
    """The ids after which the next answer comes, of the messages that fit into `room` tokens with
    its beginning; and how many are left out."""
    kept = recent(messages, encode, room - len(encode("Assistant:")))
    return chat_prompt(kept, encode, end_id), len(messages) - len(kept)


# -- talking ---------------------------------------------------------------------------------------


class Conversation:
    """Turns of a user and of a model, under the options of `language.generation_options`."""

    def __init__(self, model: Model, options: dict[str, Any]) -> None:
        self.model, self.options = model, options
        self.messages: list[Message] = []
        self.outgrown = False

    def encode(self, text: str) -> Sequence[int]:
        return self.model.tokenizer.encode(text).ids

    def prompt(self, text: str, where: str) -> list[int]:
        """The ids after which the answer to this comes.

        Half of the model's places at least are for the conversation. InputError, naming the message
        by `where`: alone it has more tokens.
        """
        places = self.model.max_length
        room = max(places - self.options["max_new_tokens"], places // 2)
        messages = [*self.messages, {"role": "user", "content": text}]
        end = self.model.tokenizer.eos_id
        ids, left_out = fitting_prompt(messages, self.encode, end, room)
        if len(ids) > room:
            raise InputError(
                f"{where}: {len(ids)} tokens, and the model has room for {room} besides an answer "
                f"of {places - room}; say less, or lower --max-new-tokens"
            )
        if left_out and not self.outgrown:
            print(
                f"from here on the oldest of more than {room} tokens are left out", file=sys.stderr
            )
            self.outgrown = True
        return ids

    def answer(self, text: str, where: str, write: Callable[[str], None] | None = None) -> str:
        """What the model answers; write: gets the pieces of it as they are made."""
        ids = self.prompt(text, where)
        note_unknown(self.model.tokenizer, text, where)
        options = self.options | {"eos_token_id": self.model.tokenizer.eos_id}
        made, *_ = complete(self.model.model, self.model.tokenizer, ids, options, write)
        answer = made.strip()
        self.messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": answer},
        ]
        return answer


class Talk:
    """Conversations one after the other, line by line."""

    def __init__(self, model: Model, options: dict[str, Any]) -> None:
        self.model, self.options = model, options
        self.conversation = Conversation(model, options)

    def begins_anew(self, line: str) -> bool:
        """Whether the line is to begin a new conversation, which it then does."""
        if line.strip() not in ("", "/new"):
            return False
        self.conversation = Conversation(self.model, self.options)
        return True

    def print_streamed(self, line: str, where: str) -> None:
        """The answer while it is made, where it can be."""
        if self.begins_anew(line):
            print("a new conversation", file=sys.stderr)
            return
        if can_stream(self.options):
            self.conversation.answer(line, where, from_first_word(_print))
            print()
        else:
            print(self.conversation.answer(line, where))

    def print_line(self, line: str, where: str) -> None:
        """The answer in one line; a blank one where a conversation begins anew."""
        anew = self.begins_anew(line)
        print("" if anew else self.conversation.answer(line, where).translate(ESCAPES))


def _print(text: str) -> None:
    print(text, end="", flush=True)


def from_first_word(write: Callable[[str], None]) -> Callable[[str], None]:
    """`write` without the space at the very beginning, which parts an answer from its name."""
    begun = False

    def write_more(piece: str) -> None:
        nonlocal begun
        if piece := piece if begun else piece.lstrip():
            begun = True
            write(piece)

    return write_more


def check_options(args: argparse.Namespace) -> None:
    """Options that this command has no use for."""
    if (args.num_return_sequences or 1) > 1:
        raise InputError("--num-return-sequences: a conversation goes on with one answer")
    characters = args.level == "char" or (args.level is None and not args.train and not args.resume)
    if characters and args.vocab_size is not None:
        raise InputError(
            "--vocab-size is for --level bpe: there are as many characters as there are"
        )


def main(args: argparse.Namespace) -> None:
    check_options(args)
    options = generation_options(args)
    learning = learns(args)
    say = cli.new_say(quiet=args.message is not None or not (learning or args.test))
    model = run(Chatting(), TRAINING, args, say)
    if args.train in (None, GENERATED) and learning and not args.resume:
        say("each of these conversations is about one thing: begin a new one for the next")
    tinyfm.manual_seed(args.seed or 0)
    talk = Talk(model, options)
    if args.message is not None:
        talk.print_streamed(args.message, "--message")
    elif cli.on_terminal() and not args.test:
        cli.answer_lines(
            talk.print_streamed, "A message a line, an empty one begins a new conversation"
        )
    elif not learning and not args.test:
        cli.answer_lines(talk.print_line)


if __name__ == "__main__":
    sys.exit(cli.run(main, new_parser()))
