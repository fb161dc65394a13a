"""Real files through the same code: Multi30k, Korean-English pairs, SciTLDR (marker `data`)."""

import gzip
import json
import re

import pytest

from tinyfm import metrics
from tinyfm.data import Batches
from tinyfm.text import read_lines, read_pairs
from tinyfm.tokenizer import Tokenizer
from tinyfm_tests.test_translate import TINY, run

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def multi30k(data_folder):
    """The paths of the source and target files of a part."""

    def files(part):
        return [data_folder / "multi30k" / f"{part}.{side}.gz" for side in ("en", "de")]

    return files


def test_multi30k_is_read_whole(multi30k):
    assert [len(read_pairs(*multi30k(part))) for part in ("train", "val")] == [29000, 1014]
    first = ("Two young, White males are outside near many bushes.",)
    assert read_pairs(*multi30k("train"))[0][:1] == first


def test_real_sentences_come_back_from_their_tokens(multi30k, data_folder):
    german = [" ".join(line.split()) for line in read_lines(multi30k("val")[1])]
    rows = read_lines(data_folder / "kor_eng" / "tatoeba_kor_eng.tsv.gz")[1:2001]
    korean = [" ".join(row.split("\t")[1].split()) for row in rows]
    for lines in (german, korean):
        tokenizer = Tokenizer.train(lines, 4000)
        assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(lines)] == lines


def test_batches_of_real_sentences_waste_little(multi30k):
    pairs = read_pairs(*multi30k("train"))
    tokenizer = Tokenizer.train([text for pair in pairs for text in pair], 8000)
    sides = [tokenizer.encode_batch([pair[i] for pair in pairs]) for i in (0, 1)]
    encoded = list(zip(*sides, strict=True))
    batches = Batches(encoded, max_tokens=2200, pad_id=0, eos_id=2, seed=0)
    assert batches.padding_share() < 0.03


def test_a_short_training_on_multi30k_learns(multi30k, tmp_path):
    """Half a minute's worth: from ln 2000 = 7.6 downwards, and a score to show for it."""
    status, out, err = run(
        *[option for option in TINY if "vocab-size" not in option],
        "--vocab-size=2000", "--steps=100", "--warmup=30", "--lr=5e-3", "--max-tokens=1500",
        "--train", *multi30k("val"), "--test", *multi30k("test_2016_flickr"),
        "--save", tmp_path / "model", "--beams=1",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert float(re.search(r"loss (\d\.\d+) after 100 steps", out)[1]) < 6.5
    assert re.search(r"^BLEU \d+\.\d\d greedy .*: 1000 test sentences", out, re.MULTILINE)


def test_the_first_sentence_of_an_abstract_as_its_summary(data_folder):
    """A baseline of SciTLDR: 28.2, 10.5 and 22.4."""
    lines = gzip.decompress((data_folder / "scitldr" / "test.jsonl.gz").read_bytes()).splitlines()
    papers = [json.loads(line) for line in lines]
    summaries = [paper["source"][0] for paper in papers]
    scores = metrics.rouge(summaries, [paper["target"] for paper in papers])
    assert [round(100 * score, 1) for score in scores] == [28.2, 10.5, 22.4]
