"""One text as five models are trained on it: what they get, what is drawn of it, the command."""

import re
from types import MethodType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinyfm
from tinyfm import models, objectives
from tinyfm.data import IGNORE_INDEX
from tinyfm.demos import compare, drawing
from tinyfm.demos.five_models import (
    EXAMPLE,
    TRANSLATIONS,
    View,
    Vocabulary,
    new_text,
    transformer,
    views,
)
from tinyfm.errors import InputError
from tinyfm.text import columns
from tinyfm.tokenizer import Tokenizer
from tinyfm_tests import commands

PAPER = ("for inviting", "last")  # what is hidden in figure 2 of Raffel et al. 2020


def seen(text, target=None, hide=(), seed=0, folder=None):
    """(views by the model's first word, vocabulary)"""
    vocabulary = Vocabulary([text, target or ""], folder)
    translation = None if target is None else new_text(target, vocabulary, least=1)
    made = views(new_text(text, vocabulary, hide), translation, vocabulary, seed)
    return {view.model.split()[0]: view for view in made}, vocabulary


def written(ids, vocabulary):
    return " ".join(vocabulary.shown(id) for id in ids)


# -- what they get ---------------------------------------------------------------------------------


EXPECTED = {
    ("Transformer", 0): (
        "Thank you for inviting me to your party last week . </s>",
        "· · · · · · · · · · · ·",
    ),
    ("Transformer", 1): (
        "<s> 지난주 파티에 초대해 주셔서 감사합니다 .",
        "지난주 파티에 초대해 주셔서 감사합니다 . </s>",
    ),
    ("GPT", 0): (
        "Thank you for inviting me to your party last week . <|endoftext|>",
        "you for inviting me to your party last week . <|endoftext|> ·",
    ),
    ("BART", 0): ("<s> Thank you <mask> me to your party <mask> week . </s>", "· " * 11 + "·"),
    ("BART", 1): (
        "</s> <s> Thank you for inviting me to your party last week .",
        "<s> Thank you for inviting me to your party last week . </s>",
    ),
    ("T5", 0): ("Thank you <0> me to your party <1> week . </s>", "· " * 10 + "·"),
    ("T5", 1): ("<pad> <0> for inviting <1> last <2>", "<0> for inviting <1> last <2> </s>"),
}


def test_r74_the_paper_s_example():
    found, vocabulary = seen(EXAMPLE, TRANSLATIONS[EXAMPLE], PAPER)
    for (model, n), (reads, labels) in EXPECTED.items():
        stack = found[model].stacks[n]
        assert written(stack.reads, vocabulary) == reads
        assert written(stack.labels, vocabulary) == labels
    (stack,) = found["BERT"].stacks
    assert written(stack.labels, vocabulary) == "· · · for inviting · · · · last · · ·"
    read = written(stack.reads, vocabulary).split()
    hidden = (3, 4, 9)
    kept = " ".join(token for i, token in enumerate(read) if i not in hidden)
    assert kept == "[CLS] Thank you me to your party week . [SEP]"
    losses = {name: view.loss for name, view in found.items()}
    assert losses == {
        "Transformer": (7, 7), "BERT": (3, 13), "GPT": (11, 12), "BART": (13, 13), "T5": (7, 7),
    }  # fmt: skip
    assert {name: view.writing for name, view in found.items()} == {
        "Transformer": ("1 + n", 8),
        "BERT": ("1, all at once", 1),
        "GPT": ("n", 11),
        "BART": ("1 + n", 14),
        "T5": ("1 + n", 8),
    }
    assert "568 tokens, it reads 512 and says 114" in found["T5"].remarks[0]


WORDS = ["Thank", "you", "to", "x2", "나는", "사과를", "e\u0301t\u00e9", ".", "!", "?"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=2, max_size=60).map(" ".join)


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(0, 1000))
def test_every_text_comes_back(text, seed):
    """What a model reads together with its labels is the text, whatever was hidden."""
    found, vocabulary = seen(text, seed=seed)
    ids = objectives.text_tokens(text, vocabulary.tokenizer).ids.tolist()
    (bert,), (gpt,), bart, t5 = (found[name].stacks for name in ("BERT", "GPT", "BART", "T5"))

    cls, sep = map(vocabulary.id, ("[CLS]", "[SEP]"))
    whole = np.where(bert.labels == IGNORE_INDEX, bert.reads, bert.labels).tolist()
    assert (whole[0], whole[-1]) == (cls, sep)
    assert [id for id in whole if id not in (cls, sep)] == ids
    assert found["BERT"].loss[0] == max(1, round(0.15 * len(whole))) + len(bert.others)
    assert len(bert.others) == (whole.count(sep) - 1)
    known = {*ids, cls, sep, vocabulary.id("[MASK]")}
    assert known.issuperset(bert.reads.tolist())

    assert gpt.reads.tolist() == [*ids, vocabulary.id("<|endoftext|>")]
    assert bart[1].labels.tolist() == [vocabulary.id("<s>"), *ids, vocabulary.id("</s>")]
    end = vocabulary.id("</s>")
    filled = objectives.fill_spans(t5[0].reads, t5[1].labels, vocabulary.sentinels, end)
    assert filled.tolist() == ids


def test_the_seed_decides():
    def reads(seed):
        found, _ = seen(EXAMPLE, seed=seed)
        return {name: found[name].stacks[0].reads.tolist() for name in ("BERT", "BART")}

    one = reads(1)
    assert one == reads(1)
    others = [reads(seed) for seed in range(2, 8)]
    for name in one:
        assert any(other[name] != one[name] for other in others)


def test_sentences_are_a_pair_for_bert():
    found, vocabulary = seen("I came. I saw! I won", hide=["saw"])
    (stack,) = found["BERT"].stacks
    segments = written(stack.reads, vocabulary).replace(" [SEP]", "").split("[CLS] ")
    assert segments[0] == "" and list(stack.reads).count(vocabulary.id("[SEP]")) == 2
    places = np.flatnonzero(stack.reads == vocabulary.id("[SEP]"))
    assert places[0] in (4, 7)  # after the first or the second sentence
    sizes = re.findall(r"Segment 0 has (\d+) tokens and segment 1 (\d+)", found["BERT"].remarks[1])
    assert [tuple(map(int, pair)) for pair in sizes] == [(places[0] + 1, places[1] - places[0])]
    assert "segment 1 follow (label 0)" in found["BERT"].remarks[1]
    # A loss at [CLS], and one at the word; a text of one sentence has no second loss.
    assert found["BERT"].loss == (2, 11)
    assert "".join(drawing.lines([found["BERT"]], vocabulary.shown, 90)).count("█" * 11) == 2
    assert any(
        re.match(r"  \[CLS\] .*  follows", line)
        for line in drawing.lines([found["BERT"]], vocabulary.shown, 90)
    )
    assert len(seen("I came, I saw.")[0]["BERT"].remarks) == 1


def test_without_a_translation_the_text_stands_in_its_place():
    found, vocabulary = seen("I saw it.")
    view = found["Transformer"]
    assert written(view.stacks[1].labels, vocabulary) == "I saw it . </s>"
    assert "--target gives one" in view.remarks[0]
    text = new_text("I saw it.", vocabulary)
    assert transformer(text, text, vocabulary).remarks == ()


@pytest.mark.parametrize("seed", range(20))
def test_what_hide_names_is_hidden_from_bert(seed):
    """Of what chance chooses, a fifth would be read as another word or as itself."""
    (stack,) = seen(EXAMPLE, hide=["me to", "party"], seed=seed)[0]["BERT"].stacks
    places = [5, 6, 8]  # behind [CLS]
    mask = seen(EXAMPLE)[1].id("[MASK]")
    assert np.flatnonzero(stack.reads == mask).tolist() == places
    assert np.flatnonzero(stack.asked).tolist() == places


@pytest.mark.parametrize("learn", ["train", "train_byte_level", "train_unigram"])
def test_a_tokenizer_cuts_the_text(learn, tmp_path):
    text = "Unbelievably, it rained."
    letters = " ".join(text)  # all are known, and no piece is a whole word
    getattr(Tokenizer, learn)([letters, *["belie able rain"] * 2], 290).save(tmp_path)
    found, vocabulary = seen(text, hide=["it rained"], folder=str(tmp_path))
    ids = found["GPT"].stacks[0].reads[:-1]
    assert len(ids) > 5 and vocabulary.tokenizer.decode(ids) == text
    kept = [id for id in found["T5"].stacks[0].reads if id not in vocabulary.sentinels]
    assert vocabulary.tokenizer.decode(kept) == "Unbelievably,."
    shown = "".join(vocabulary.shown(id) for id in ids)
    assert re.sub("[▁Ġ]", "", shown) == text.replace(" ", "")  # a lone space is shown by its sign


@pytest.mark.parametrize(
    "hide, hidden",
    [
        (["to"], [5]),  # not what is in `too`
        (["you", "me to"], [1, 4, 5]),
        (["week"], [8, 10]),
    ],
)
def test_words_are_hidden_wherever_they_stand(hide, hidden):
    text = "Thank you for inviting me to too your week , week ."
    vocabulary = Vocabulary([text])
    assert np.flatnonzero(new_text(text, vocabulary, hide).hidden).tolist() == hidden


# -- as the models have it -------------------------------------------------------------------------


SIDES = {
    f"{side}_{name}": n
    for side in ("encoder", "decoder")
    for name, n in {"layers": 1, "attention_heads": 2, "ffn_dim": 16}.items()
}


def bodies(vocabulary):
    """A tiny model of each kind, with the special tokens that it starts from."""
    tinyfm.manual_seed(0)
    size, mark = len(vocabulary.tokenizer), vocabulary.id
    seq2seq = {"vocab_size": size, "d_model": 16, **SIDES}
    ids = {"pad_token_id": mark("<pad>"), "eos_token_id": mark("</s>")}
    return {
        "Transformer": models.Transformer(
            models.TransformerConfig(**seq2seq, **ids, decoder_start_token_id=mark("<s>"))
        ),
        "BERT": models.BertForMaskedLM(
            models.BertConfig(
                vocab_size=size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                intermediate_size=16,
            )
        ),
        "GPT": models.GPT2LMHeadModel(
            models.GPT2Config(vocab_size=size, n_embd=16, n_layer=1, n_head=2, n_positions=64)
        ),
        "BART": models.BartForConditionalGeneration(
            models.BartConfig(
                **seq2seq, **ids, bos_token_id=mark("<s>"), decoder_start_token_id=mark("</s>")
            )
        ),
        "T5": models.T5ForConditionalGeneration(
            models.T5Config(
                vocab_size=size, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, **ids,
                decoder_start_token_id=mark("<pad>"),
            )
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def example():
    return seen(EXAMPLE, TRANSLATIONS[EXAMPLE], PAPER)


@pytest.mark.parametrize("name", ["Transformer", "BERT", "GPT", "BART", "T5"])
def test_the_models_look_where_the_masks_say(name, example):
    found, vocabulary = example
    stacks, model = found[name].stacks, bodies(vocabulary)[name].eval()
    inputs = {"input_ids": stacks[0].reads[None]}
    if len(stacks) == 2:
        inputs["decoder_input_ids"] = stacks[1].reads[None]
        places = ["encoder_attentions", "cross_attentions", "decoder_attentions"]
    else:
        places = ["attentions"]
    output = model(**inputs, output_attentions=True)
    masks = [mask for stack in stacks for mask in stack.sees.values()]
    for place, mask in zip(places, masks, strict=True):
        weights = getattr(output, place)[0][0]
        np.testing.assert_array_equal(weights > 0, np.broadcast_to(mask, weights.shape))


@pytest.mark.parametrize("name", ["Transformer", "BERT", "GPT", "BART", "T5"])
def test_the_models_take_their_loss_where_the_labels_are(name, example):
    """Labels alone, from which a model makes its decoder's input, are worth what the view says."""
    found, vocabulary = example
    stacks, model = found[name].stacks, bodies(vocabulary)[name].eval()
    reads, labels = stacks[-1].reads, stacks[-1].labels
    source = stacks[0].reads[None]
    own = reads if name == "GPT" else labels  # what a model shifts by itself
    output = model(input_ids=source, labels=own[None])
    assert output.num_labels == found[name].loss[0]
    decoder = {"decoder_input_ids": reads[None]} if len(stacks) == 2 else {}
    logits = model(input_ids=source, **decoder).logits.numpy()[0].astype(float)
    asked = np.flatnonzero(labels != IGNORE_INDEX)
    chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -chances[asked, labels[asked]].mean()
    assert output.loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["Transformer", "GPT", "BART", "T5"])
def test_as_many_forward_passes_as_the_table_says(name, example):
    found, vocabulary = example
    view, model = found[name], bodies(vocabulary)[name].eval()
    stacks = [model.transformer.decoder] if name == "GPT" else [model.encoder, model.decoder]
    passes = []
    for stack in stacks:
        stack.forward = MethodType(counting(type(stack).forward, passes), stack)
    tokens = view.loss[0]
    ids = view.stacks[0].reads[None, :3]
    options = {"eos_token_id": None, "forced_eos_token_id": None, "forced_bos_token_id": None}
    model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, **options)
    assert len(passes) == view.writing[1]


def counting(forward, passes):
    def counted(*arguments, **options):
        passes.append(forward)
        return forward(*arguments, **options)

    return counted


# -- in the terminal -------------------------------------------------------------------------------


def read_blocks(view, vocabulary, width):
    """{(head, group): cells} of what is drawn, found again by columns of the terminal."""
    lines = [*drawing.lines([view], vocabulary.shown, width)]
    found, heads = {}, {}
    for line in lines:
        spread = "".join(c + "\0" * (columns(c) - 1) for c in line if columns(c))
        if re.match(r" +(en|de)coder in ", line):
            heads = {m.start(): m[0] for m in re.finditer(r"(en|de)coder in|\w+", spread)}
            blocks = dict.fromkeys(heads)
            stack = None
            for place, name in sorted(heads.items()):
                stack = name.split()[0] if name.endswith(" in") else stack
                blocks[place] = (stack, name)
                found.setdefault((stack, name), [])
        elif line.startswith("  ") and heads:
            for place, key in blocks.items():
                cell = re.match(r"\S*", spread[place:])[0].replace("\0", "")
                if cell and place and spread[place - 1] in " ":
                    found[key].append(cell)
        else:
            heads = {}
    return found


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["Transformer", "BERT", "GPT", "BART", "T5"])
def test_what_is_drawn_is_what_is_there(name, width, example):
    """Korean, two columns a syllable, included: every cell stands below its head."""
    found, vocabulary = example
    view = found[name]._replace(remarks=())
    drawn = read_blocks(view, vocabulary, width)
    for stack in view.stacks:
        reads = drawn[stack.name, f"{stack.name} in"]
        assert " ".join(reads) == written(stack.reads, vocabulary)
        asked = stack.labels != IGNORE_INDEX
        for group, mask in stack.sees.items():
            cells = np.array([[*row] for row in drawn[stack.name, group]])
            np.testing.assert_array_equal(cells == "·", ~mask)
            np.testing.assert_array_equal(cells == "█", mask & asked[:, None])
        assert ((stack.name, "label") in drawn) == asked.any()
        if asked.any():
            assert " ".join(drawn[stack.name, "label"]) == written(stack.labels, vocabulary)


@settings(max_examples=20, deadline=None)
@given(TEXTS, st.integers(78, 160))
def test_no_line_is_longer_than_the_terminal(text, width):
    found, vocabulary = seen(text)
    for line in drawing.lines([*found.values()], vocabulary.shown, width):
        assert columns(line) <= width
        assert line == line.rstrip()


def test_a_long_text_is_cut_with_a_note_and_counted_whole():
    text = " ".join(f"w{n}" for n in range(100))
    found, vocabulary = seen(text)
    for width, most in ((80, 23), (120, 43)):
        lines = [*drawing.lines([found["BART"]], vocabulary.shown, width)]
        note = re.search(r"the first (\d+) of (\d+) positions", "\n".join(lines))
        assert (int(note[1]), int(note[2])) == (most, 102)
        assert sum("█" in line for line in lines[3:]) == most
    assert "102 of 102" in lines[-3]
    part, note = drawing.shortened(found["BART"], 102)
    assert note == "" and len(part.stacks[1].reads) == 102
    part, _ = drawing.shortened(found["BART"], 10)
    assert [mask.shape for mask in part.stacks[1].sees.values()] == [(10, 10), (10, 10)]


def test_a_long_token_is_cut():
    found, vocabulary = seen("Donaudampfschifffahrt 가나다라마바사아자차 it")
    lines = "\n".join(drawing.lines([found["GPT"]], vocabulary.shown, 80))
    assert "  Donaudampfsc…  █" in lines and "  가나다라마바…  ██" in lines


# -- as a figure -----------------------------------------------------------------------------------


def test_the_figure_has_every_mask(example):
    found, vocabulary = example
    figure = drawing.figure([*found.values()], vocabulary.shown)
    titles = [axes.get_title("left") for axes in figure.axes]
    both = ["encoder: itself", "decoder: source", "decoder: itself"]
    assert titles == [*both, "encoder: itself", "decoder: itself", *both, *both]
    stacks = [stack for view in found.values() for stack in view.stacks]
    masks = [(stack, mask) for stack in stacks for mask in stack.sees.values()]
    for axes, (stack, mask) in zip(figure.axes, masks, strict=True):
        drawn = axes.images[0].get_array()
        np.testing.assert_array_equal(drawn > 0, mask)
        np.testing.assert_array_equal(drawn == 1, mask & (stack.labels != IGNORE_INDEX)[:, None])
    decoder = figure.axes[2]
    labels = " ".join(text.get_text() for text in decoder.texts)
    assert labels == EXPECTED["Transformer", 1][1]
    assert [t.get_text() for t in figure.axes[1].get_xticklabels()] == (
        EXPECTED["Transformer", 0][0].split()
    )


# -- the command -----------------------------------------------------------------------------------


def test_the_command_shows_all_five_and_draws_them(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    hide = [option for words in PAPER for option in ("--hide", words)]
    status, out, err = commands.call(
        compare, "--text", EXAMPLE, *hide, "--plot", tmp_path / "pictures"
    )
    assert (status, err) == (0, "")
    assert (tmp_path / "pictures" / "five_models.png").read_bytes().startswith(b"\x89PNG")
    for model in (
        "Transformer (2017)",
        "BERT (2018)",
        "GPT (2018-2020)",
        "BART (2019)",
        "T5 (2019)",
    ):
        assert len(re.findall(f"^{re.escape(model)}", out, re.MULTILINE)) == 2  # and in the table
    assert "감사합니다" in out
    assert all(columns(line) <= 80 for line in out.splitlines()[:-1])


def test_a_target_and_a_seed_may_be_given():
    text = ["--text", "I saw it on that very day."]
    one, again, other = (
        commands.call(compare, *text, "--target", "봤다", "--seed", seed)[1] for seed in (1, 1, 2)
    )
    assert one == again != other
    assert "봤다" in one and "--target" not in one


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--text", "Hello"], "--text has 1 token; give 2 to 512"),
        (["--text", "\u200b"], "--text has 0 tokens; give 2 to 512"),
        (["--text", "a " * 600], "--text has 600 tokens; give 2 to 512"),
        (["--text", " "], "argument --text: give a text that is not blank"),
        (["--text", "a b", "--hide", "c"], "--hide 'c': the text has no such words; give whole"),
        (["--text", "an ant", "--hide", "ant", "--hide", "n"], "--hide 'n': the text has no such"),
        (["--text", "a b", "--hide", "a b"], "--hide leaves nothing of the text; leave a word"),
        (["--text", "a b " * 150, "--hide", "a"], "need 151 sentinels, and there are 100"),
        (["--text", "a b", "--tokenizer", "nowhere"], "nowhere: holds no tokenizer; give a folder"),
        (["--text", "a b", "--steps", 3], "--steps is for --architectures; leave it out"),
        (["--text", "a b", "--architectures"], "give either --text TEXT or --architectures"),
        (["--architectures", "--hide", "a"], "--hide goes with --text; leave it out"),
        (["--text", "a b", "--plot", "a file"], "a file: File exists; give another name"),
    ],
)
def test_what_does_not_go_is_refused(arguments, complaint, tmp_path):
    (tmp_path / "a file").touch()
    assert complaint in commands.refused(compare, *arguments, place=tmp_path)


def test_many_hidden_words_are_an_input_error():
    text = "a b " * 150
    with pytest.raises(InputError, match="need 151 sentinels"):
        seen(text, hide=["a"])


def test_a_view_counts_its_last_stack(example):
    found, _ = example
    assert View("", "", found["BART"].stacks[:1]).loss == (0, 12)
