"""The chat command: its files, what it learns from, what it answers, what it forgets."""

import gzip
import json
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyfm import InputError, models, pretrained
from tinyfm.data import IGNORE_INDEX
from tinyfm.demos import chat
from tinyfm.demos.families import LANGUAGE
from tinyfm.demos.finetuning import Model
from tinyfm.demos.records import Chat, Records, read_chats
from tinyfm.objectives import chat_example, chat_prompt
from tinyfm.tokenizer import Tokenizer
from tinyfm_tests import commands

LEAST_EXACT_MATCH = 0.7  # of the default training

call = partial(commands.call, chat)
refused = partial(commands.refused, chat)
TINY = ["--hidden-size=16", "--layers=1", "--heads=2", "--level=char", "--max-length=80"]


def conversation(*turns, system=None):
    """Turns of the user and the assistant in alternation, perhaps after the system's."""
    roles = ("user", "assistant") * len(turns)
    given = [("system", system)] * (system is not None) + list(zip(roles, turns, strict=False))
    return [{"role": role, "content": content} for role, content in given]


# What "more" means depends on what was said before.
CHATS = [
    conversation("a", "one", "more", "two"),
    conversation("b", "six", "more", "ten"),
    conversation("a", "one"),
    conversation("b", "six", system="Be brief."),
]
LINES = "".join(json.dumps({"messages": messages}) + "\n" for messages in CHATS)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "chats.jsonl"
    path.write_text(LINES, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def learnt(file, tmp_path_factory):
    """(folder, output) of a training that learns the conversations by heart."""
    folder = tmp_path_factory.mktemp("learnt")
    how = ["--hidden-size=32", "--layers=1", "--heads=2", "--level=char", "--max-length=128"]
    how += ["--dropout=0", "--lr=0.01", "--steps=80"]
    status, out, err = call("--train", file, "--test", file, *how, "--save", folder)
    assert (status, err) == (0, "")
    return folder, out


@pytest.fixture(scope="module")
def model(learnt):
    return opened(learnt[0])


def opened(folder):
    net = pretrained.load(folder)
    return Model(net, pretrained.load_tokenizer(folder), net.config.n_positions, LANGUAGE)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content",
    [
        ("plain.jsonl", LINES.encode()),
        ("packed.jsonl.gz", gzip.compress(LINES.encode())),
        ("marked.jsonl", f"\ufeff{LINES}".encode()),
        ("blank.jsonl", LINES.replace("\n", "\r\n\r\n").encode()),
    ],
)
def test_conversations_are_read(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    records = read_chats(tmp_path / name)
    assert records == [Chat(tuple(messages)) for messages in CHATS]
    assert records.where(2) == f"{tmp_path / name}:{5 if name == 'blank.jsonl' else 3}"


ASKED = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    "row, said",
    [
        ("{", ": not JSON"),
        ("[]", ": no JSON object"),
        ({"text": "a"}, ": no 'messages'; every record needs one"),
        ({"messages": "a"}, ": 'messages' is no list of messages; write it as"),
        ({"messages": []}, ": 'messages' is no list of messages; write it as"),
        ({"messages": ["a"]}, ": message 'a' is no object; write it as"),
        ({"messages": [{"content": "a"}]}, ": no 'role'"),
        ({"messages": [{"role": "user"}]}, ": no 'content'"),
        (
            {"messages": [{"role": "bot", "content": "a"}]},
            ": role 'bot' is unknown; use one of sys",
        ),
        ({"messages": [{"role": ["user"], "content": "a"}]}, r": role \['user'\] is unknown; use"),
        ({"messages": [{"role": "user", "content": 5}]}, ": 'content' is no text"),
        ({"messages": [ASKED, {"role": "assistant", "content": " "}]}, ": 'content' is blank"),
        ({"messages": [ASKED]}, ": no turn of the assistant, so that there is nothing to learn; "),
    ],
)
def test_what_is_wrong_with_a_file_is_said_of_its_row(row, said, tmp_path, caplog):
    row = row if isinstance(row, str) else json.dumps(row)
    (tmp_path / "f").write_text(f"{LINES}{row}\n", encoding="utf-8")
    assert re.search(f"chat: f:5{said}", refused("--train=f", place=tmp_path))
    kept = read_chats(tmp_path / "f", skip=True)
    assert len(kept) == 4 and "dropped 1 of 5 rows" in caplog.text


def test_an_empty_file(tmp_path):
    (tmp_path / "f").write_text("")
    assert "f: the file is empty" in refused("--train=f", place=tmp_path)


# -- what is learnt --------------------------------------------------------------------------------


def test_every_answer_is_labelled_with_its_end_and_nothing_else(model):
    record = Chat(tuple(conversation("a", "one", "Assistant: b", "six", "more", system="Be.")))
    (example,) = chat.Chatting().examples([record], model)
    ids, labels = (np.array(example[name]) for name in ("input_ids", "labels"))
    parts = ["System: Be.\nUser: a\nAssistant:", " one|", "User: Assistant: b\nAssistant:", " six|"]
    text, marks = "".join(parts), "".join(" |"[i % 2] * len(part) for i, part in enumerate(parts))
    assert len(ids) == len(labels) == len(text)
    end = model.tokenizer.eos_id
    encode = [[end] if c == "|" else model.tokenizer.encode(c).ids for c in text]
    assert ids.tolist() == [i for piece in encode for i in piece]
    assert [label != IGNORE_INDEX for label in labels] == [mark == "|" for mark in marks]
    assert (labels[labels != IGNORE_INDEX] == ids[labels != IGNORE_INDEX]).all()


def test_conversations_are_learnt_and_score_the_same_again(learnt, file):
    folder, out = learnt
    last = out.splitlines()[-1]
    assert re.search(r": answer loss 0\.0\d\d, exact match 100\.0% of 6 answers$", last)
    assert call("--model", folder, "--test", file) == (0, last + "\n", "")


def test_the_score_is_that_of_each_answer_by_itself(file, tmp_path):
    """Of a model that knows only a part, from single rows without padding."""
    how = ("--train", file, *TINY, "--dropout=0", "--lr=0.02", "--steps=25", "--save", tmp_path)
    assert call(*how)[0] == 0
    ready = opened(tmp_path)
    records = read_chats(file)
    score = chat.Chatting().score(records, ready)
    net, tokenizer = ready.model, ready.tokenizer
    losses, hits = [], []
    for messages in CHATS:
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = chat_prompt(messages[:i], lambda text: tokenizer.encode(text).ids, 0)
            answer = [*tokenizer.encode(f" {message['content']}").ids, tokenizer.eos_id]
            logits = net(input_ids=[prompt + answer]).logits.data[0, len(prompt) - 1 : -1]
            logits = logits.astype(np.float64)
            logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            losses += [-row[i] for row, i in zip(logs, answer, strict=True)]
            made = net.generate([prompt], max_new_tokens=len(answer), eos_token_id=0)
            hits.append(made[0, len(prompt) :].tolist() == answer)
    assert score.numbers["answer_loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert score.numbers["exact_match"] == np.mean(hits)
    assert 0 < np.mean(hits) < 1, "a model that has learnt more or less"


@given(
    lengths=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 10)), max_size=150),
    room=st.integers(60, 80),
)
def test_answers_that_are_made_together_fit_into_the_model(lengths, room):
    """Long answers of short prompts as well, beside others."""
    prompts, answers = [a for a, _ in lengths], [room - a if b > 8 else b for a, b in lengths]
    groups = list(chat.groups(prompts, answers, room))
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= chat.TOGETHER
        assert max(prompts[i] for i in group) + max(answers[i] for i in group) <= room


def test_shares_are_told_by_kind(model):
    records = [Chat(tuple(m), kind) for m, kind in zip(CHATS[:2], ("old", "new"), strict=True)]
    records.append(Chat(tuple(conversation("a", "on")), "new"))  # the beginning of what it says
    text = chat.Chatting().score(Records(records, [""] * 3), model).text
    assert text.endswith("exact match 80.0% of 5 answers: old 100%, new 67%")


# -- long conversations ----------------------------------------------------------------------------

MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text(max_size=9)}
    ),
    max_size=8,
)


@given(messages=MESSAGES, room=st.integers(0, 120))
def test_the_oldest_turns_are_left_out_until_the_rest_fits(messages, room):
    kept = chat.recent(messages, list, room)

    def length(some):
        return len(chat_example(some, list, 0)[0])

    said = [message["role"] == "system" for message in messages]
    system = said.index(False) if False in said else len(said)
    turns = kept[system:]
    assert kept == messages[:system] + messages[len(messages) - len(turns) :]
    left_out = messages[system : len(messages) - len(turns)]
    assert not left_out or turns[0]["role"] != "assistant"
    # No more could be left out, or none had to be; and one turn more would have been too much.
    assert length(kept) <= room or all(m["role"] == "assistant" for m in turns[1:])
    starts = [i for i, message in enumerate(left_out) if i == 0 or message["role"] != "assistant"]
    assert not left_out or length([*messages[:system], *left_out[starts[-1] :], *turns]) > room


@given(messages=MESSAGES)
def test_what_just_fits_is_left_whole(messages):
    assert chat.recent(messages, list, len(chat_example(messages, list, 0)[0])) == messages


def test_examples_are_no_longer_than_the_model_takes(model):
    short = model._replace(max_length=30)
    long = "a" * 50
    turns = (("a", "one", "more", "two", "b", "six"), ("a", long), (long, "one"))
    records = [Chat(tuple(conversation(*each))) for each in turns]
    examples = chat.Chatting().examples(records, short)
    assert max(len(example["input_ids"]) for example in examples) == 30
    texts = [model.tokenizer.decode(example["input_ids"]) for example in examples]
    assert texts == ["User: b\nAssistant: six", "a" * 29, "a" * 14 + "\nAssistant: one"]
    assert all(max(example["labels"]) >= 0 for example in examples)


def test_a_conversation_outgrows_the_model(learnt):
    """Half of 128 tokens are left to it, and a third turn would be the 70th."""
    lines = b"a\nmore\nmore\na\nmore\n/new\na\nmore\nmore\n"
    status, out, err = call("--model", learnt[0], stdin=lines)
    assert status == 0 and len(out.splitlines()) == 9 and out.startswith("one\n")
    # Said once in each of the two conversations.
    assert err == "from here on the oldest of more than 64 tokens are left out\n" * 2


def test_a_message_that_is_too_long(learnt, tmp_path):
    said = refused("--model", learnt[0], "--message", "a" * 70, place=tmp_path)
    assert "--message: 87 tokens, and the model has room for 64 besides an answer of 64; " in said
    assert "say less, or lower --max-new-tokens" in said
    status, out, err = call("--model", learnt[0], stdin=b"a\n" + b"b" * 70)
    assert (status, out) == (2, "one\n") and "chat: standard input:2: 87 tokens" in err


# -- talking ---------------------------------------------------------------------------------------


def test_a_message_is_answered(learnt):
    assert call("--model", learnt[0], "--message", "a") == (0, "one\n", "")
    assert call("--model", learnt[0], "--message", "b", "--beams=2") == (0, "six\n", "")


def test_characters_that_the_model_does_not_know_are_named(learnt):
    status, _, err = call("--model", learnt[0], "--message", "집 b")
    assert (status, err) == (0, "--message: the model does not know '집'\n")


def test_lines_are_a_conversation_until_a_new_one_begins(learnt):
    lines = "a\nmore\n\nb\nmore\n/new\na\nmore"
    status, out, err = call("--model", learnt[0], stdin=lines.encode())
    assert (status, out, err) == (0, "one\ntwo\n\nsix\nten\n\none\ntwo\n", "")


def test_an_answer_of_several_lines_is_one_line(learnt, monkeypatch):
    monkeypatch.setattr(chat, "complete", lambda *_: [" one\ntwo\\"])
    assert call("--model", learnt[0], stdin=b"a")[1] == "one\\ntwo\\\\\n"


def test_what_was_said_comes_before_what_is_asked(model, monkeypatch):
    prompts = []
    monkeypatch.setattr(chat, "complete", lambda _1, _2, ids, *_: prompts.append(ids) or [" six"])
    talk = chat.Conversation(model, {"max_new_tokens": 10})
    assert [talk.answer(text, "") for text in ("a", "b")] == ["six", "six"]
    end = model.tokenizer.eos_id
    assert [prompt.count(end) for prompt in prompts] == [0, 1]
    texts = [model.tokenizer.decode(prompt) for prompt in prompts]
    assert texts == ["User: a\nAssistant:", "User: a\nAssistant: sixUser: b\nAssistant:"]


def test_seeds_of_what_is_drawn(learnt):
    how = ("--model", learnt[0], "--message=b", "--temperature=30", "--max-new-tokens=20")
    first, same, other = (call(*how, "--seed", seed)[1] for seed in (1, 1, 2))
    assert first == same != other


def test_r76_a_prompt_on_a_terminal(learnt):
    keys = ("a\n", "more\n", "b" * 70 + "\n", "/new\n")
    status, shown, err = commands.typed("chat", "--model", learnt[0], keys=keys)
    assert status == 0
    assert re.findall(r"> ([a-z]+)", shown) == ["one", "two"]
    first, second, third = err.splitlines()
    assert first == "A message a line, an empty one begins a new conversation; Ctrl-D ends."
    assert second.startswith("this line: ") and third == "a new conversation"


# -- models ----------------------------------------------------------------------------------------


def gpt2(folder):
    """An untrained GPT-2 with its vocabulary."""
    tokenizer = Tokenizer.train_byte_level(["a b one two six ten more", LINES], 300)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 60}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.eos_id)
    config = models.GPT2Config(vocab_size=len(tokenizer), **sizes, **ends)
    models.GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save(folder)


def gpt1(folder):
    """An untrained GPT-1, whose vocabulary has no token that ends a text."""
    import tokenizers as hf

    letters = sorted({*LINES})
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    Tokenizer(hf.Tokenizer(hf.models.BPE(vocabulary, []))).save(folder)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 60}
    config = models.OpenAIGPTConfig(vocab_size=len(letters), **sizes)
    models.OpenAIGPTLMHeadModel(config).save_pretrained(folder)


@pytest.mark.parametrize("family, new", [(gpt2, False), (gpt1, True)])
def test_a_language_model_is_fine_tuned(family, new, file, tmp_path):
    family(tmp_path / "body")
    how = ("--train", file, "--test", file, "--steps=2", "--save", tmp_path / "m")
    status, out, err = call(*how, "--model", tmp_path / "body")
    assert (status, err) == (0, "")
    row = "new, and to be learnt: 1 rows of transformer.tokens.weight\n"
    assert (row in out) == new
    body, tuned = (pretrained.load(tmp_path / name) for name in ("body", "m"))
    assert type(tuned) is type(body)
    assert tuned.config.vocab_size == body.config.vocab_size + new
    assert tuned.config.eos_token_id == pretrained.load_tokenizer(tmp_path / "m").eos_id
    assert call("--model", tmp_path / "m", "--test", file)[1] == out.splitlines()[-1] + "\n"
    status, out, _ = call(*how[:-1], tmp_path / "more", "--model", tmp_path / "m")
    assert status == 0 and "new, and" not in out
    if new:
        said = refused("--model=body", "--message=a", place=tmp_path)
        assert "body: no token that ends an answer; give --train FILE too" in said


def test_generated_conversations_for_a_model_that_is_there(tmp_path, monkeypatch):
    gpt2(tmp_path / "body")
    few = Records.generated([Chat(tuple(messages)) for messages in CHATS], "conversation")
    monkeypatch.setattr(chat.instructions, "records", lambda: (few, {"others": few}))
    how = ("--train=generated", "--model=body", "--steps=1")
    status, out, err = call(*how, cwd=tmp_path)
    assert (status, err) == (0, "")
    *_, score, hint = out.splitlines()
    assert out.startswith("4 records") and score.startswith("others: answer loss")
    assert hint == "each of these conversations is about one thing: begin a new one for the next"
    assert pretrained.load(tmp_path / "chat-model").config.n_positions == 60


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--level=word", "--level: give bpe or char, not 'word'"),
        ("--vocab-size=500", "--vocab-size is for --level bpe"),
        ("--train f --level=char --vocab-size=500", "--vocab-size is for --level bpe"),
        ("--model m --level=bpe --train f", "--level is for a new model, and that in m"),
        ("--num-return-sequences=2", "--num-return-sequences: a conversation goes on with one"),
        ("--beams=2 --top-p=0.5", "--top-p is for drawing"),
        ("--top-k=5", "--top-k is for drawing: give a --temperature above 0"),
        ("--temperature=-1", "--temperature"),
        ("--model m --steps=5", "--steps is for a training: give --train too"),
        ("--train f --hidden-size=16 --heads=3", "16 is not a multiple of --heads 3"),
        ("--train f --max-tokens=4", "--max-tokens 4: example "),
    ],
)
def test_r77_bad_options(arguments, said, tmp_path):
    (tmp_path / "f").write_text(LINES, encoding="utf-8")
    assert said in refused(*arguments.split(), place=tmp_path)


def test_a_blank_message(learnt, tmp_path):
    said = refused("--model", learnt[0], "--message", " ", place=tmp_path)
    assert "--message: no text; say something" in said


def test_a_message_that_does_not_fit_is_found_before_the_training(file, tmp_path):
    said = refused("--train", file, *TINY, "--message", "a" * 70, place=tmp_path)
    assert "--message: 87 tokens" in said


def test_padding_on_the_left_tells_nothing_of_ids():
    ids, mask = chat.padded_left([[7], [7, 8, 9]], fill=7)
    assert ids.tolist() == [[7, 7, 7], [7, 8, 9]] and mask.tolist() == [[0, 0, 1], [1, 1, 1]]


def test_a_tokenizer_without_an_end(model):
    """Named with the folder that it comes from."""
    bare = model._replace(tokenizer=type("Bare", (), {"eos_id": None})())
    args = chat.new_parser().parse_args(["--model=m"])
    with pytest.raises(InputError, match="m: no token that ends an answer"):
        chat.Chatting().check_asked(args, bare)


# -- the promise of the command --------------------------------------------------------------------


@pytest.mark.slow
def test_without_options_it_learns_to_follow_instructions(tmp_path):
    status, out, err = commands.run("chat", cwd=tmp_path)
    assert (status, err) == (0, "")
    (share,) = re.findall(r"^[^ ].*: answer loss .*, exact match (\S+)% of", out, re.MULTILINE)
    assert float(share) >= 100 * LEAST_EXACT_MATCH
    lines = b"Write house in capital letters.\nAnd how many letters?\n"
    status, out, err = call("--model", tmp_path / "chat-model", stdin=lines)
    assert (status, out, err) == (0, "HOUSE\n5\n", "")
