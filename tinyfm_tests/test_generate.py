"""The generate command: learning, going on with texts, bad input."""

import json
import math
import re
import shutil
from functools import partial

import numpy as np
import pytest

from tinyfm import models, pretrained
from tinyfm.demos import chat, generate, language, sources
from tinyfm.tokenizer import Tokenizer
from tinyfm_tests import commands

MOST_PERPLEXITY = 60  # of the default training, on modules that it has not seen: a bigram has 77

SIZES = {"hidden-size": 16, "layers": 1, "heads": 2, "context": 24, "batch-size": 4}
TINY = [f"--{name}={value}" for name, value in SIZES.items()]
FOLDER = ["checkpoint", "config.json", "model.safetensors", "tokenizer.json"]
FOLDER = [*FOLDER, "tokenizer_config.json"]
GREEDY = ("--temperature", 0)

call, refused = (partial(function, generate) for function in (commands.call, commands.refused))
run = partial(commands.run, "generate")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Good texts and bad ones."""
    folder = tmp_path_factory.mktemp("texts")
    words = [
        "def add(a, b):\n    return a + b\n",
        "나는 밥을 먹는다.\n",
        "for i in range(3):\n\tpass\n",
    ]
    rng = np.random.default_rng(0)
    texts = ["".join(words[i] for i in rng.integers(3, size=20)) for _ in range(20)]
    contents = {
        "texts.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts).encode(),
        "text.txt": "".join(texts).encode(),
        "short.txt": b"abc def\n" * 8,
        "held.txt": bytes(range(33, 123)),
        "empty.txt": b"",
        "blank.txt": b"\n \n",
        "invalid.txt": b"a b\n\xff\n",
        "row.jsonl": b'{"text": "a b c"}\n{"txt": "d"}\n',
        "damaged.gz": b"abc",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def few(files):
    return "--corpus", files / "texts.jsonl", "--vocab-size", 300, *TINY


@pytest.fixture(scope="module")
def trained(few, tmp_path_factory):
    """(folder, status, out, err) of five steps."""
    place = tmp_path_factory.mktemp("trained")
    result = call("--steps", 5, *few, cwd=place)
    return place / "language-model", *result


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the trained folder, to be damaged."""
    return shutil.copytree(trained[0], tmp_path / "model")


# -- learning --------------------------------------------------------------------------------------


def test_a_training_reports_and_leaves_a_folder(trained):
    folder, status, out, err = trained
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert re.match(
        r"17 texts of [\d,]+ characters, [\d,]+ tokens, 300 in the vocabulary, [\d,]+ parameters, "
        r"\d+ batches an epoch, 5 steps$", lines[0],
    )  # fmt: skip
    assert lines[1].startswith("  | ")  # a sample
    scores = r"loss (\d\.\d{3}); held out (\d\.\d{3}), perplexity (\d+\.\d\d)"
    looks = [found for line in lines if (found := re.match(rf"  {scores}$", line))]
    assert len(looks) == 5
    assert all(
        float(look[3]) == pytest.approx(math.exp(float(look[2])), rel=2e-3) for look in looks
    )
    assert re.match(r"loss \d\.\d+ after 5 steps, \d+ s; saved to language-model$", lines[-2])
    assert re.match(
        r"3 held-out texts: loss \d\.\d+, perplexity \d+\.\d\d of \d+ tokens", lines[-1]
    )
    assert sorted(path.name for path in folder.iterdir()) == FOLDER
    model = pretrained.load(folder)
    assert type(model) is models.GPT2LMHeadModel
    assert (model.config.eos_token_id, model.config.n_positions) == (0, 24)


def test_what_is_reported_is_the_loss_on_what_is_held_out(trained, files):
    """Computed anew, window by window, from logits."""
    folder, _, out, _ = trained
    model = models.GPT2LMHeadModel.from_pretrained(folder)
    tokenizer = pretrained.load_tokenizer(folder, model)
    _, held_out = sources.split(sources.read(files / "texts.jsonl"))
    ids = [i for text in held_out for i in (*tokenizer.encode(text).ids, tokenizer.eos_id)]
    losses = []
    for begin in range(0, len(ids) - 23, 24):
        window = np.array(ids[begin : begin + 24])
        logits = model(input_ids=window[None]).logits.data[0].astype(np.float64)
        shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        losses += [-np.log(shares[np.arange(23), window[1:]])]
    said = re.search(r"held-out texts: loss (\S+), .* of (\S+) tokens", out)
    assert float(said[1]) == pytest.approx(np.mean(losses), abs=6e-4)
    assert int(said[2].replace(",", "")) == np.size(losses)


@pytest.mark.parametrize("level", ["char", "bpe"])
def test_it_learns_what_can_be_known(level, tmp_path):
    """A text that says the same again and again; as one text, and in characters as well."""
    (tmp_path / "same.txt").write_text("the cat sat.\n지금 간다.\n" * 60, encoding="utf-8")
    how = {"steps": 150, "lr": 0.01, "warmup": 10, "hidden-size": 32, "max-new-tokens": 14}
    status, out, err = call(
        "--corpus", "same.txt", "--level", level, *TINY, *(f"--{n}={v}" for n, v in how.items()),
        "--prompt", "sat.\n지금", *GREEDY, cwd=tmp_path,
    )  # fmt: skip
    assert status == 0
    assert out.startswith("sat.\n지금 간다.\nthe cat")
    assert float(re.findall(r"perplexity (\S+) of", err)[-1]) < 1.7


def test_characters_are_the_vocabulary(files, tmp_path):
    corpus = files / "text.txt"
    status, out, _ = call("--corpus", corpus, "--level=char", *TINY, "--steps=1", cwd=tmp_path)
    text = corpus.read_text(encoding="utf-8")
    assert status == 0
    assert f"1 text of {len(text) * 9 // 10:,} characters" in out
    assert f" {len(text) * 9 // 10 + 1:,} tokens, {len({*text}) + 2} in the vocabulary" in out


def test_samples_go_on_with_the_prompt_and_leave_the_training_alone(trained, few, tmp_path):
    status, out, err = call(
        "--steps", 5, *few, "--prompt", "for i", "--num-return-sequences", 2,
        "--max-new-tokens", 9, cwd=tmp_path,
    )  # fmt: skip
    assert status == 0
    assert err.count("  | for i") == 5
    assert out.startswith("for i") and "\n---\nfor i" in out
    weights = (tmp_path / "language-model" / "model.safetensors").read_bytes()
    assert weights == (trained[0] / "model.safetensors").read_bytes()


# -- going on --------------------------------------------------------------------------------------


def expected(folder, prompt, new=8, **options):
    """What the model's own generate makes of a prompt, all of it."""
    model = pretrained.load(folder)
    tokenizer = pretrained.load_tokenizer(folder, model)
    ids = tokenizer.encode(prompt).ids
    made = model.generate([ids], max_new_tokens=new, **options)
    return [prompt + tokenizer.decode(row[len(ids) :]) for row in made]


@pytest.mark.parametrize(
    "given, options",
    [
        ("--temperature 0", {}),
        ("--temperature 0 --repetition-penalty 1.7", {"repetition_penalty": 1.7}),
        ("--temperature 0 --no-repeat-ngram-size 1", {"no_repeat_ngram_size": 1}),
        ("--temperature 0 --min-new-tokens 8", {"min_new_tokens": 8}),
        ("--beams 3", {"num_beams": 3}),
        ("--beams 3 --num-return-sequences 2", {"num_beams": 3, "num_return_sequences": 2}),
        ("--beams 2 --length-penalty -2 --early-stopping yes",
         {"num_beams": 2, "length_penalty": -2.0, "early_stopping": True}),
        ("--beams 2 --early-stopping never", {"num_beams": 2, "early_stopping": "never"}),
        ("--top-k 1", {}),
        ("--top-p 0.000001", {}),
        ("--temperature 0.000001", {}),
    ],
)  # fmt: skip
def test_each_option_is_that_of_generate(given, options, trained):
    status, out, err = call(
        "--model", trained[0], "--prompt", "for i in", "--max-new-tokens", 8, *given.split()
    )
    assert (status, err) == (0, "")
    assert out == "\n---\n".join(expected(trained[0], "for i in", **options)) + "\n"


@pytest.mark.parametrize(
    "given, wanted",
    [
        ("", {"do_sample": True, "temperature": 0.8, "num_beams": 1}),
        ("--temperature 0", {"do_sample": False, "num_beams": 1}),
        ("--temperature 2 --top-k 0 --top-p 0.9 --num-return-sequences 3",
         {"do_sample": True, "num_beams": 1, "temperature": 2, "top_k": 0, "top_p": 0.9,
          "num_return_sequences": 3}),
        ("--beams 3 --length-penalty 2 --early-stopping no --min-new-tokens 4",
         {"do_sample": False, "num_beams": 3, "length_penalty": 2, "early_stopping": False,
          "min_new_tokens": 4}),
        ("--beams 3 --early-stopping yes",
         {"do_sample": False, "num_beams": 3, "early_stopping": True}),
        ("--repetition-penalty 1.2 --no-repeat-ngram-size 3 --temperature 0",
         {"do_sample": False, "num_beams": 1, "repetition_penalty": 1.2,
          "no_repeat_ngram_size": 3}),
    ],
)  # fmt: skip
def test_what_the_options_mean(given, wanted):
    args = generate.new_parser().parse_args(given.split())
    usual = {"max_new_tokens": 100, "num_return_sequences": 1}
    assert language.generation_options(args) == usual | wanted


def test_samples_follow_the_seed_the_temperature_and_the_filters(trained):
    def texts(*options):
        status, out, err = call(
            "--model", trained[0], "--prompt", "a", "--num-return-sequences", 30,
            "--max-new-tokens", 2, *options,
        )  # fmt: skip
        assert (status, err) == (0, "")
        return out.split("\n---\n")

    assert texts() == texts("--seed", 0) != texts("--seed", 1)
    assert len({*texts("--temperature", 2)}) > len({*texts("--temperature", 0.05)})
    assert len({*texts("--top-k", 2)}) <= 4 < len({*texts("--top-k", 0)})
    assert len({*texts("--top-p", 0.02)}) < len({*texts()})


def test_parts_of_characters_are_shown_by_their_bytes():
    tokenizer, text = Tokenizer.train_byte_level(["a"], 257), "나 é\x01\n²"
    names = [language.token_name(tokenizer, i) for i in tokenizer.encode(text).ids]
    assert names == [repr(chr(b)) if b < 128 else rf"'\x{b:02x}'" for b in text.encode()]
    assert language.token_name(tokenizer, tokenizer.eos_id) == "<|endoftext|>"
    tokenizer = Tokenizer.train_byte_level(["나난날"], 258)  # one merge: what they share
    names = [language.token_name(tokenizer, i) for i in tokenizer.encode("나").ids]
    assert names == [r"'\xeb\x82'", r"'\x98'"]


@pytest.mark.parametrize(
    "more", [(), ("--repetition-penalty", 3), ("--temperature", 0.5, "--top-k", 2)]
)
def test_probabilities_are_those_under_the_options(more, trained):
    how = ("--model", trained[0], "--prompt", "for", "--max-new-tokens", 3, "--seed", 4)
    status, out, err = call(*how, "--show-probabilities", *(more or GREEDY))
    assert (status, err) == (0, "")
    table, _, text = out.partition("\n\n")
    steps = table.split("\n")
    assert len(steps) == 3 and text == call(*how, *(more or GREEDY))[1]
    model = pretrained.load(trained[0])
    tokenizer = pretrained.load_tokenizer(trained[0], model)
    ids = tokenizer.encode("for").ids
    for step in steps:
        chosen, share, others = re.match(r"(.+?) +(\d\.\d{3})  of  (.*)", step).groups()
        logits = model(input_ids=[ids]).logits.data[0, -1].astype(np.float64)
        if "--repetition-penalty" in more:
            seen = [*{*ids}]
            logits[seen] = np.where(logits[seen] > 0, logits[seen] / 3, logits[seen] * 3)
        logits /= 0.5 if "--top-k" in more else 0.8 if more else 1
        kept = 2 if "--top-k" in more else 50 if more else len(logits)
        logits[np.argsort(-logits)[kept:]] = -np.inf
        shares = np.exp(logits) / np.exp(logits).sum()
        best = np.argsort(-shares)[: min(5, kept)]
        assert re.findall(r" (\d\.\d{3})(?=  |$)", f" {others}") == [
            f"{shares[i]:.3f}" for i in best
        ]
        same = [i for i in np.argsort(-shares) if f"{shares[i]:.3f}" == share]
        ids.append(int(next(i for i in same if language.token_name(tokenizer, i) == chosen)))


def test_r76_each_line_of_standard_input_is_answered_by_one_line(trained):
    lines = ["def", "", "  ", "!?! ☃ zzqx", "나는 \\ \t."]
    status, out, err = call(
        "--model", trained[0], *GREEDY, "--max-new-tokens", 8, stdin="\n".join(lines).encode()
    )
    assert (status, err) == (0, "")
    answers = out.split("\n")
    assert len(answers) == 6 and answers[1] == answers[2] == answers[5] == ""
    for i in (0, 3, 4):
        (wanted,) = expected(trained[0], lines[i])
        assert json.loads('"' + answers[i].replace('"', r"\"") + '"') == wanted
    status, out, _ = call(
        "--model", trained[0], "--beams=2", "--num-return-sequences=2", stdin=b"a"
    )
    assert status == 0 and out.count("\t") == out.count("\n") == 1


def test_r65_an_empty_prompt_begins_with_the_begin_token(trained):
    status, out, err = call("--model", trained[0], "--prompt", "", *GREEDY, "--max-new-tokens", 5)
    assert (status, err) == (0, "")
    model = pretrained.load(trained[0])
    made = model.generate([[0]], [[1]], max_new_tokens=5)
    assert out == pretrained.load_tokenizer(trained[0]).decode(made[0]) + "\n"
    special = call(
        "--model", trained[0], "--prompt", "<|endoftext|>", *GREEDY, "--max-new-tokens", 5
    )
    assert special == (0, f"<|endoftext|>{out}", "")


def test_r65_no_new_tokens_leave_the_prompt(trained):
    assert call("--model", trained[0], "--prompt", "for", "--max-new-tokens", 0) == (0, "for\n", "")


def test_r62_at_the_context_limit_it_stops_with_a_note(trained):
    tokenizer = pretrained.load_tokenizer(trained[0])
    prompt = tokenizer.decode(tokenizer.encode("나는 밥을 먹는다.\n" * 9).ids[:20])
    size = len(tokenizer.encode(prompt).ids)
    for options in (GREEDY, ("--beams", 2)):
        status, out, err = call("--model", trained[0], "--prompt", prompt, *options)
        assert (status, err) == (0, "the text stops at the 24 tokens that the model takes\n")
    whole = "a" * 24
    assert len(tokenizer.encode(whole).ids) == 24 > size
    status, out, err = call("--model", trained[0], "--prompt", whole)
    assert (status, out) == (0, f"{whole}\n") and "stops at the 24 tokens" in err


def test_probabilities_of_lines_leave_each_its_one_line(trained):
    how = ("--model", trained[0], *GREEDY, "--max-new-tokens", 3)
    status, out, err = call(*how, "--show-probabilities", stdin=b"for\ndef\n")
    assert (status, out) == call(*how, stdin=b"for\ndef\n")[:2]
    assert status == 0 and err.count("  of  ") == err.count("\n") == 6


@pytest.mark.parametrize("words", ["ab " * 400, " " * 400])
def test_a_sample_is_as_long_as_the_context_allows(words, tmp_path):
    """Also where each letter is a token, and where the held-out text is blank."""
    (tmp_path / "text.txt").write_text("a" * 2600 + words, encoding="utf-8")
    status, out, err = call(
        "--corpus", "text.txt", "--level=char", *TINY, "--context=16", "--steps=1", cwd=tmp_path
    )
    assert (status, err) == (0, "") and "  | " in out


def test_text_is_written_while_it_is_made(trained):
    """At a prompt, before the next token is known; and never half a character (R42)."""
    code = """
import time
from tinyfm.models import GPT2LMHeadModel
step, count = GPT2LMHeadModel.step, 0
def slow(*arguments):
    global count
    count += 1
    if count == 4:
        print("<three>", end="", flush=True)
    return step(*arguments)
GPT2LMHeadModel.step = slow
"""
    status, out, err = run(
        "--model", trained[0], "--prompt", "for", *GREEDY, "--max-new-tokens", 5, code=code
    )
    (wanted,) = expected(trained[0], "for", 5)
    (first,) = expected(trained[0], "for", 3)
    assert (status, err) == (0, "")
    assert out.replace("<three>", "") == f"{wanted}\n"
    assert out.partition("<three>")[0] == first.rstrip("\ufffd")


def test_a_prompt_on_a_terminal(trained):
    how, keys = (*GREEDY, "--max-new-tokens", 3), ("for i\n", "a" * 30 + "\n")
    status, shown, err = commands.typed("generate", "--model", trained[0], *how, keys=keys)
    (wanted,) = expected(trained[0], "for i", 3)
    assert status == 0 and wanted in shown.replace("\r\n", "\n")
    assert "this line: 30 tokens, and the model takes 24" in err


def test_a_gpt1_has_no_token_to_begin_with(trained, tmp_path):
    config = models.OpenAIGPTConfig(vocab_size=300, n_positions=24, n_embd=16, n_layer=1, n_head=2)
    models.OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path)
    for name in FOLDER[3:]:
        shutil.copy(trained[0] / name, tmp_path)
    status, out, err = call("--model", tmp_path, "--prompt", "for", *GREEDY, "--max-new-tokens", 4)
    assert (status, out, err) == (0, expected(tmp_path, "for", 4)[0] + "\n", "")
    said = refused("--model", tmp_path, "--prompt", "", place=tmp_path)
    assert "--prompt: no text, and the model has no token to begin with" in said


@pytest.fixture
def gpt1(tmp_path):
    """A GPT-1 of few words, whose tokens tell where words end: a space stands between them."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    vocabulary = ["<unk>", *"abc", "a</w>", "b</w>", "c</w>"]
    ids = {token: i for i, token in enumerate(vocabulary)}
    backend = Tokenizer(BPE(ids, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.add_special_tokens(["<unk>"])
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    backend.save(str(tmp_path / "tokenizer.json"))
    config = models.OpenAIGPTConfig(vocab_size=7, n_positions=24, n_embd=16, n_layer=1, n_head=2)
    models.OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("prompt", ["ab c", "ab c "])
@pytest.mark.parametrize("how", [GREEDY, ("--beams", 2), ("--show-probabilities",)])
def test_what_a_gpt1_makes_follows_the_prompt_as_in_one_text(prompt, how, gpt1):
    status, out, err = call("--model", gpt1, "--prompt", prompt, *how, "--max-new-tokens", 6)
    text = out.splitlines()[-1]
    assert (status, err) == (0, "") and text.startswith("ab c ")
    tokenizer = pretrained.load_tokenizer(gpt1)
    assert text.split() == tokenizer.decode(tokenizer.encode(text).ids).split()
    assert "  " not in text


def test_a_space_at_the_end_is_left_to_the_model_unless_it_is_a_token(trained, files, tmp_path):
    how = ("--model", trained[0], *GREEDY, "--max-new-tokens", 6)
    assert call(*how, "--prompt", "for i in ") == call(*how, "--prompt", "for i in")
    assert call(*how, stdin=b"for i in \n") == call(*how, stdin=b"for i in\n")
    tokenizer = Tokenizer.train_characters(["a b"])
    assert language.open_ended(tokenizer, "a ") == "a "
    tokenizer = pretrained.load_tokenizer(trained[0])
    assert language.open_ended(tokenizer, "a:\n    ") == "a:\n   "  # the last goes with the word


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    """An untrained model of seven tokens, all about as probable."""
    folder, tokenizer = (
        tmp_path_factory.mktemp("characters"),
        Tokenizer.train_characters(["abc \n"]),
    )
    tokenizer.save(folder)
    sizes = {"n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = models.GPT2Config(vocab_size=7, bos_token_id=None, eos_token_id=0, **sizes)
    models.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def test_characters_that_are_not_known_are_named(characters):
    how = ("--model", characters, *GREEDY, "--max-new-tokens", 2)
    status, out, err = call(*how, "--prompt", "a漢b☃漢")
    assert (status, err) == (0, "--prompt: the model does not know '漢', '☃'\n")
    assert out.startswith("a漢b☃漢")
    status, _, err = call(*how, stdin=b"a\nxa\n")
    assert (status, err) == (0, "standard input:2: the model does not know 'x'\n")


def test_held_out_characters_that_are_not_known_are_counted(tmp_path):
    (tmp_path / "text.txt").write_text("ab" * 900 + "a漢" * 100, encoding="utf-8")
    status, out, _ = call(
        "--corpus", "text.txt", "--level", "char", *TINY, "--steps=1", cwd=tmp_path
    )
    # 200 characters and an end: 8 windows of 24, in each of which all but the first are scored.
    said = "perplexity \\S+ of 184 tokens, 96 of them characters that are not in the vocabulary\n"
    assert status == 0 and re.search(said, out)


@pytest.mark.parametrize(
    "more, text",
    [
        (("--no-repeat-ngram-size", 1, "--min-new-tokens", 20), True),
        (("--no-repeat-ngram-size", 1, "--min-new-tokens", 20, "--beams", 3), False),
    ],
)
def test_r77_options_that_leave_no_token_are_one_line(more, text, characters):
    how = ("--model", characters, "--prompt", "ab", "--max-new-tokens", 20)
    status, out, err = call(*how, *(more if "--beams" in more else (*GREEDY, *more)))
    assert (status, err.count("\n")) == (2, 1) and out.startswith("ab") is text
    assert "forbid every token" in err and "a larger --no-repeat-ngram-size or a smaller" in err


def test_texts_that_do_not_exist_are_not_printed_but_said(characters):
    status, out, err = call(
        "--model", characters, "--prompt", "ab", "--beams", 10, "--num-return-sequences", 10,
        "--max-new-tokens", 1,
    )  # fmt: skip
    assert status == 0 and len(out.split("\n---\n")) == 7
    assert err.startswith("beams found 7 of 10 texts: ") and err.count("\n") == 1


# -- the folder's settings -------------------------------------------------------------------------


def with_settings(folder, **settings):
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return "--model", folder, "--prompt", "for", "--max-new-tokens", 8


@pytest.mark.parametrize(
    "how", [(), GREEDY, ("--beams", 2), ("--show-probabilities",), ("--num-return-sequences", 2)]
)
def test_a_folders_number_of_texts_gives_way_to_the_commands(how, model):
    asked = ("--model", model, "--prompt", "for", "--max-new-tokens", 8, *how)
    wanted = call(*asked)
    assert wanted[0] == 0
    with_settings(model, num_return_sequences=3, do_sample=True)
    assert call(*asked) == wanted
    with_settings(model, num_return_sequences=3, num_beams=4)
    assert call(*asked) == wanted


def test_a_conversation_has_one_answer_whatever_the_folder_says(model):
    asked = ("--model", model, "--message", "a", "--max-new-tokens", 2)
    wanted = commands.call(chat, *asked)
    with_settings(model, num_return_sequences=3, do_sample=True)
    assert commands.call(chat, *asked) == wanted and wanted[0] == 0


@pytest.mark.parametrize(
    "settings", [{"bad_words_ids": [[5000]]}, {"forced_eos_token_id": 5000}], ids=str
)
def test_r77_a_folders_tokens_that_do_not_exist_are_named(settings, model, tmp_path):
    asked = with_settings(model, **settings)
    said = refused(*asked, place=tmp_path)
    (name,) = settings
    assert f"generation_config.json: {name} has the id 5000, and the vocabulary has 300" in said


def test_a_folders_least_length_is_followed_as_far_as_there_is_room(model, trained):
    """Forced to end at once, the model would: the folder's least length forbids it."""
    first = call("--model", trained[0], "--prompt", "for", *GREEDY, "--max-new-tokens", 1)[1]
    ids = pretrained.load_tokenizer(model).encode("for").ids
    end = int(pretrained.load(model).generate([ids], max_new_tokens=1)[0, -1])
    asked = with_settings(model, eos_token_id=[299, end], min_new_tokens=2)
    made = call(*asked, *GREEDY)
    assert made[0] == 0 and made[2] == ""
    asked = with_settings(model, eos_token_id=[299, end])
    assert call(*asked, *GREEDY) == (0, first, "")
    assert made[1] != first
    asked = with_settings(model, eos_token_id=[299, end], min_new_tokens=99)
    assert call(*asked, *GREEDY)[::2] == (0, "")


def test_options_of_a_folder_that_generate_lacks_are_named(model):
    status, out, err = call(*with_settings(model, min_p=0.1, typical_p=1.0), *GREEDY)
    assert status == 0 and out.startswith("for")
    assert re.match(r".*generation_config\.json: generate has no min_p and goes on without", err)
    assert err.count("\n") == 1


# -- R77: bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, said",
    [
        ("--level word", "--level: invalid choice: 'word'"),
        ("--model m --corpus=", "--corpus and --level make one"),
        ("--model m --level char", "--corpus and --level make one"),
        ("--model m --resume", "--resume is for a training: leave --model out"),
        ("--model m --context 9", "--context is for a training: leave --model out"),
        ("--hidden-size 16 --heads 3", "--hidden-size 16 is not a multiple of --heads 3"),
        ("--context 1", "--context 1: nothing follows one token; give 2 or more"),
        ("--level char --vocab-size 9", "--vocab-size is for --level bpe"),
        ("--temperature -1", "--temperature is -1.0: it must be between 0 and"),
        ("--temperature nan", "--temperature: give a number, not 'nan'"),
        ("--top-k -1", "--top-k: give a whole number of at least 0"),
        ("--top-p 0", "--top-p is 0.0: it must be above 0 and at most 1"),
        ("--top-p 1.1", "--top-p is 1.1: it must be above 0 and at most 1"),
        ("--repetition-penalty 0", "--repetition-penalty is 0.0: it must be above 0"),
        ("--beams 0", "--beams: give a whole number of at least 1"),
        ("--beams 2 --length-penalty 200", "--length-penalty is 200.0: it must be between"),
        ("--beams 2 --temperature 1", "--temperature is for drawing, and --beams 2 draws nothing"),
        ("--beams 2 --top-k 5", "--top-k is for drawing, and --beams 2 draws nothing"),
        ("--beams 2 --top-p 0.5", "--top-p is for drawing, and --beams 2 draws nothing"),
        ("--length-penalty 1", "--length-penalty is for beams: give --beams 2 or more"),
        ("--early-stopping yes --beams 1", "--early-stopping is for beams: give --beams 2"),
        ("--early-stopping 5", "--early-stopping: invalid choice"),
        ("--temperature 0 --top-p 0.5", "--top-p is for drawing: give a --temperature above 0"),
        ("--temperature 0 --num-return-sequences 2", "--num-return-sequences 2: there are so many"),
        ("--beams 2 --num-return-sequences 3", "--num-return-sequences 3: there are so many"),
        ("--min-new-tokens 9 --max-new-tokens 5", "--min-new-tokens 9 is more than"),
        ("--num-return-sequences 0", "--num-return-sequences: give a whole number of at least 1"),
        ("--show-probabilities --beams 2", "--show-probabilities shows how one text is made"),
        ("--show-probabilities --num-return-sequences 2", "leave --beams and --num-return-seq"),
    ],
)
def test_options_that_do_not_do(arguments, said, files, tmp_path):
    corpus = ("--corpus", files / "short.txt")
    if any(f"--{name}" in arguments for name in ("model", "resume")):
        corpus = ()
    assert said in refused(*corpus, *arguments.split(), place=tmp_path)


@pytest.mark.parametrize(
    "name, said",
    [
        ("none.txt", "none.txt: No such file"),
        (".", "Is a directory"),
        ("empty.txt", "empty.txt: the file is empty"),
        ("blank.txt", "blank.txt: every line is blank"),
        ("invalid.txt", "invalid.txt:2: not valid UTF-8"),
        ("damaged.gz", "damaged.gz: the gzip archive is cut short or damaged"),
        ("row.jsonl", "row.jsonl:2: no 'text'; every record needs one"),
        ("short.txt", "tokens to learn from are fewer than --context 24; give more text or"),
        ("held.txt", "tokens held out are fewer than --context 24; give more text or a smaller"),
    ],
)
def test_texts_that_do_not_do(name, said, files, tmp_path):
    assert said in refused("--corpus", files / name, *TINY, place=tmp_path)


def test_r62_a_prompt_that_is_too_long(trained, few, tmp_path):
    """Also before a training, at once."""
    for how in (few, ("--model", trained[0])):
        said = refused(*how, "--prompt", "a" * 25, place=tmp_path)
        assert "--prompt: 25 tokens, and the model takes 24 (25 > 24); cut the text" in said
    status, out, err = call("--model", trained[0], "--max-new-tokens=1", stdin=b"a\n" + b"b" * 25)
    assert (status, out.count("\n")) == (2, 1) and "standard input:2: 25 tokens" in err


# -- beside transformers ---------------------------------------------------------------------------


@pytest.mark.parity
@pytest.mark.parametrize("level", ["bpe", "char"])
def test_transformers_opens_what_was_saved(level, files, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    corpus = ("--corpus", files / "texts.jsonl", *TINY)
    assert call(*corpus, "--level", level, "--steps", 3, cwd=tmp_path)[0] == 0
    folder = tmp_path / "language-model"
    theirs = AutoModelForCausalLM.from_pretrained(folder).double().eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "def add(나는"
    ids = pretrained.load_tokenizer(folder).encode(text).ids
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.eos_token_id == theirs.config.eos_token_id == 0
    with torch.no_grad():
        wanted = theirs(torch.tensor([ids])).logits.numpy()
    own = pretrained.load(folder, dtype=np.float64)(input_ids=[ids]).logits.data
    np.testing.assert_allclose(own, wanted, rtol=0, atol=1e-12)
    made = theirs.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False)
    assert [tokenizer.decode(made[0])] == expected(folder, text)


# -- the promises ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_options_it_learns_python(tmp_path):
    """Better than the frequencies of pairs of tokens would tell."""
    status, _, err = run("--prompt", "class Stack:\n    def __init__(self", cwd=tmp_path)
    assert status == 0
    score = float(re.search(r"held-out texts: loss \S+, perplexity (\S+) of", err)[1])
    assert score < MOST_PERPLEXITY
