"""The benchmarks run, say what they lack, and compare fairly.  Nothing here is timed."""

import gzip
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tinyfm import models
from tinyfm.demos import transfer

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # bench is not installed: it is run from the repository

# bench sets the threads of a process that measures; the tests' own process keeps its settings.
_environment = dict(os.environ)
from bench import (  # noqa: E402
    breakdown,
    common,
    comparisons,
    finetuning,
    generate,
    masked_lm,
    multi30k,
    plots,
    products,
    report,
    scaling,
    train_step,
    translation,
)

os.environ.clear()
os.environ.update(_environment)
sys.path.remove(str(ROOT))


def run(command, **environment):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def quick(folder, **environment):
    """A quick run of bench.ops: (what it printed, its result file)."""
    done = run(["-m", "bench.ops", "--quick", "--folder", str(folder)], **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "ops.json").read_text(encoding="utf-8"))


@pytest.fixture
def without_torch(tmp_path):
    """An environment in which torch cannot be imported."""
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ImportError('blocked by the test')", encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


def test_ops_without_torch_names_it_as_missing(tmp_path, without_torch):
    out, document = quick(tmp_path / "results", **without_torch)
    assert document["peers"] == {"torch": "missing: not installed"}
    assert "peers: torch missing: not installed" in out
    assert {r["unit"] for r in document["rows"]} == {"us", "ms", "s", "MB"}
    beside_torch = [r for r in document["rows"] if r["peer"] == "torch"]
    assert len(beside_torch) > 20
    for r in beside_torch:
        assert r["theirs"] is r["ratio"] is None
        assert r["tinyfm"]["sum"] > 0
        line = next(line for line in out.splitlines() if line.startswith(f"| {r['work']} "))
        assert "| missing" in line
        if "torch" in r["goal"]:
            assert r["reached"] is not True  # a goal against a peer that was not there
    assert document["settings"]["quick"] is True
    assert "torch missing: not installed" in report.render([document])


@pytest.mark.parity
def test_ops_beside_torch_do_the_same_work(tmp_path):
    _, document = quick(tmp_path)  # raises NotTheSameWork in the process otherwise
    assert document["peers"]["torch"][0].isdigit()
    assert all(r["ratio"] > 0 for r in document["rows"] if r["peer"])


def test_help_as_a_module_and_as_a_file():
    for command in (["-m", "bench.ops"], ["bench/ops.py"]):
        done = run([*command, "--help"])
        assert done.returncode == 0, done.stderr
        assert "--rounds" in done.stdout
        assert "--no-save" in done.stdout


def test_a_quick_run_never_replaces_the_real_results(without_torch):
    before = {path: path.read_bytes() for path in common.RESULTS.iterdir()}
    done = run(["bench/ops.py", "--quick"], **without_torch)
    assert done.returncode == 0, done.stderr
    assert "written" not in done.stdout
    assert before == {path: path.read_bytes() for path in common.RESULTS.iterdir()}


def test_alternate_takes_turns():
    calls = []

    def steps(name):
        return (
            lambda: calls.append(f"{name} forward") or name,
            lambda given: calls.append(f"{name} backward of {given}"),
        )

    a, b = common.alternate(steps("a"), steps("b"), rounds=3, settle=0)
    turn = {name: [f"{name} forward", f"{name} backward of {name}"] for name in "ab"}
    # In each turn one call that is not timed goes before the one that is.
    assert calls == (2 * turn["a"] + 2 * turn["b"]) * 3
    assert len(a.median) == len(b.median) == len(b.fastest) == 2


def test_alternate_gives_medians_of_the_timed_calls(monkeypatch):
    clock = iter([0, 100, 0, 1, 0, 100, 0, 9, 0, 100, 0, 2])  # starts and ends of the calls
    monkeypatch.setattr(common.time, "perf_counter", lambda: next(clock))
    timing, missing = common.alternate(lambda: None, None, rounds=3, settle=0)
    assert timing == ((2,), (1,))
    assert missing is None


def test_assert_same_is_relative_to_the_largest_entry():
    x = np.array([1000.0, 0.0], np.float32)
    common.assert_same("op", x, x + np.float32(0.05))
    common.assert_same("op", [x, x], [x, x])
    for wrong in (x + np.float32(0.2), x * np.nan, x[:1], x.astype(np.float64)):
        with pytest.raises(common.NotTheSameWork, match="op: result 1"):
            common.assert_same("op", [x, x], [x, wrong])
    with pytest.raises(common.NotTheSameWork, match="2 results against 1"):
        common.assert_same("op", [x, x], [x])


def test_the_table_says_goals_and_what_is_missing():
    ours, theirs = common.Timing((1, 2), (1, 1)), common.Timing((2, 4), (2, 4))
    rows = [
        common.row("g", "a", "us", ours, theirs, peer="torch", goal="<= 3", reached=True),
        common.row("g", "b", "us", 7.0, None, peer="torch", goal="<= 2", reached=False),
    ]
    header, rule, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in common.table(rows).splitlines()
    )
    assert header[2:4] == ["tinyfm", "torch"]
    assert set("".join(rule)) == {"-"}
    assert lines == [
        ["a", "us", "1 + 2 = 3", "2 + 4 = 6", "0.50", "1.50", "<= 3", "yes"],
        ["b", "us", "7", "missing", "-", "-", "<= 2", "**no**"],
    ]


def test_large_numbers_have_no_exponent():
    assert [common.number(x) for x in (0.01234, 9.876, 123.4, 1234.5)] == [
        "0.0123", "9.88", "123", "1234",
    ]  # fmt: skip


def test_the_committed_table_is_made_of_the_committed_results():
    readme = (common.RESULTS / "README.md").read_text(encoding="utf-8")
    documents = report.documents()
    assert readme == report.render(documents), "run python -m bench.report"
    assert not any(d["settings"].get("quick") for d in documents)
    quoting = report.README.read_text(encoding="utf-8")
    assert quoting == report.with_quoted(quoting, documents), "run python -m bench.report"


@pytest.mark.parametrize(
    "bench, option",
    [
        ("translation", "--multi30k FOLDER"),
        ("train_step", "--allocator"),
        ("breakdown", "--rounds"),
        ("scaling", "--lengths"),
        ("multi30k", "--data FOLDER"),
        ("masked_lm", "--shape"),
        ("generate", "--shape"),
        ("characters", "--text FILE"),
        ("finetuning", "--data FOLDER"),
        ("summaries", "--data FOLDER"),
        ("comparisons", "--only"),
    ],
)
def test_the_other_benches_explain_themselves(bench, option):
    done = run(["-m", f"bench.{bench}", "--help"])
    assert done.returncode == 0 and option in done.stdout


@pytest.mark.parametrize(
    "command",
    [["characters", "--text", "FILE"], ["multi30k", "--data", "FILE", "--save", "FILE/run"]],
    ids=lambda command: command[0],
)
def test_a_missing_file_is_one_line(command, tmp_path):
    missing = str(tmp_path / "nothing")
    name, *options = (part.replace("FILE", missing) for part in command)
    done = run(["-m", f"bench.{name}", *options])
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: {missing}")


SMALL = train_step.Size(d=16, heads=2, layers=1, ffn=24, batch=9, length=8)


@pytest.mark.parity
def test_a_training_step_is_the_same_work_in_torch():
    row = train_step.measure(SMALL, rounds=1)
    assert row["ratio"] > 0 and row["work"] == "d 16, 1+1, ffn 24, 9 x 8 tokens"


@pytest.mark.parity
def test_other_work_is_not_timed(monkeypatch):
    build = train_step.their_model

    def other(torch, model, size):
        peer = build(torch, model, size)
        cross = peer.decoder.layers[0].cross
        with torch.no_grad():
            cross.out.weight *= 1.5  # a shift alike in all would go in the norm
        return peer

    monkeypatch.setattr(train_step, "their_model", other)
    with pytest.raises(common.NotTheSameWork):
        train_step.measure(SMALL, rounds=1)


def test_a_training_step_without_torch_is_timed_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    row = train_step.measure(SMALL, rounds=1)
    assert row["theirs"] is row["ratio"] is row["reached"] is None
    assert row["tinyfm"]["sum"] > 0


SAID = """\
16 pairs, 84 subwords, 19,904 parameters, 1 batches an epoch, 0.0% padding
loss 0.107 after 120 steps, 3 s; saved to model
BLEU 91.50 greedy (79.3% exact), 92.25 with 4 beams (80.0% exact): 300 random sentences, 12 s
     nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
BLEU 69.00 greedy (40.0% exact), 71.00 with 4 beams (40.3% exact): 300 compositional sentences, 14 s
     nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
"""


def test_scores_are_read_off_what_the_command_says(monkeypatch):
    monkeypatch.setattr(translation, "run", lambda *arguments, **options: SAID)
    *rows, seconds = translation.rows_of("work", goals=(90, 70), seconds=60)
    assert [(r["work"], r["tinyfm"]["sum"], r["goal"], r["reached"]) for r in rows] == [
        ("work: 300 random sentences, greedy", 91.5, ">= 90", True),
        ("work: 300 random sentences, 4 beams", 92.25, ">= 90", True),
        ("work: 300 compositional sentences, greedy", 69.0, ">= 70", False),
        ("work: 300 compositional sentences, 4 beams", 71.0, ">= 70", True),
    ]
    for row, exact in zip(rows, ("79.3%", "80.0%", "40.0%", "40.3%"), strict=True):
        assert all(said in row["note"] for said in ("120 steps", f"{exact} of the", "nrefs:1"))
    assert seconds["unit"] == "s" and seconds["reached"] is True


TINY = masked_lm.Shape(
    models.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
    ),
    batch=9,
    length=12,
)


def test_some_words_between_the_special_ones_are_hidden_and_ends_are_padded():
    batch = masked_lm.batch_of(TINY)
    ids, labels, seen = (batch[k] for k in ("input_ids", "labels", "attention_mask"))
    assert (ids[:, 0] == masked_lm.CLS).all() and (ids == masked_lm.SEP).sum() == 9
    assert seen.sum(1).tolist() == [12, 11, 10, 9, 8, 7, 6, 5, 12]
    assert (ids[seen == 0] == 0).all() and (labels[seen == 0] == -100).all()
    assert (labels[labels != -100] >= masked_lm.ORDINARY).all()
    assert ((labels != -100).sum(1) >= 1).all()


@pytest.mark.parity
@pytest.mark.parametrize("head", masked_lm.HEADS)
def test_masked_words_are_the_same_work_in_transformers(head):
    row = masked_lm.measure(TINY, head, rounds=1)
    assert row["ratio"] > 0 and head.name in row["work"]
    assert (row["goal"] != "") == (head == masked_lm.HEADS[0])


@pytest.mark.parity
def test_other_masked_words_are_not_timed(monkeypatch):
    loss = masked_lm.their_loss
    monkeypatch.setattr(masked_lm, "their_loss", lambda *given: 1.001 * loss(*given))
    with pytest.raises(common.NotTheSameWork):
        masked_lm.measure(TINY, masked_lm.HEADS[0], rounds=1)


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_masked_words_without_a_peer_are_timed_alone(missing, monkeypatch):
    peers = {"torch": ModuleType("torch"), "transformers": ModuleType("transformers")}
    monkeypatch.setattr(common, "peer", (peers | {missing: None}).get)
    row = masked_lm.measure(TINY, masked_lm.HEADS[0], rounds=1)
    assert row["theirs"] is row["ratio"] is row["reached"] is None
    assert row["tinyfm"]["sum"] > 0


@pytest.mark.parity
@pytest.mark.parametrize("shape", ["tiny", "tiny_t5"])
def test_generation_is_the_same_work_in_transformers(shape):
    row, *limits = generate.measure(generate.SHAPES[shape], rounds=1)
    assert row["ratio"] > 0 and row["reached"] is None and " times as many" in row["note"]
    assert len(limits) == 2
    assert all(limit["theirs"] is None and limit["tinyfm"]["sum"] > 0 for limit in limits)


@pytest.mark.parity
def test_other_tokens_are_not_timed(monkeypatch):
    side = generate.their_side

    def other(model, shape):
        call = side(model, shape)
        return lambda: (call() + 1) % shape.config.vocab_size

    monkeypatch.setattr(generate, "their_side", other)
    with pytest.raises(common.NotTheSameWork):
        generate.measure(generate.SHAPES["tiny"], rounds=1)


def test_the_limit_of_generation_has_the_weights_that_a_token_meets(monkeypatch):
    met = []
    for name, matrices in (("tiny", 1 + 4 * 2), ("tiny_t5", 1 + 6 * 2)):
        shape = generate.SHAPES[name]
        model = shape.model()
        run = generate.products(model, shape)
        (weights,) = (
            cell.cell_contents
            for name, cell in zip(run.__code__.co_freevars, run.__closure__, strict=True)
            if name == "weights"
        )
        assert len(weights) == matrices
        met.append(sum(w.size for w in weights))
        run()
    d, ffn = 16, 64
    assert met[0] == 50 * d + 2 * (4 * d * d + 2 * d * ffn)
    assert met[1] == 50 * d + 2 * (4 * d * d + 2 * d * d + 2 * d * 32)


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_generation_without_a_peer_is_timed_alone(missing, monkeypatch):
    peers = {"torch": ModuleType("torch"), "transformers": ModuleType("transformers")}
    monkeypatch.setattr(common, "peer", (peers | {missing: None}).get)
    row, *_ = generate.measure(generate.SHAPES["tiny"], rounds=1)
    assert row["theirs"] is row["ratio"] is row["reached"] is None
    assert row["tinyfm"]["sum"] > 0 and row["note"].endswith("tokens a second")


def test_the_goals_of_generation_are_tokens_a_second(monkeypatch):
    """Twice the tokens reach a goal of 1.3 times as many, and miss one of 3.5."""
    monkeypatch.setattr(
        generate, "their_side", lambda model, shape: generate.our_side(model, shape)
    )
    monkeypatch.setattr(common, "alternate", lambda *_: (next(timings), next(timings)))
    for faster, reached in ((1.3, True), (3.5, False)):
        timings = iter([common.Timing((0.1,), (0.1,)), common.Timing((0.2,), (0.2,))] * 3)
        row, *_ = generate.measure(generate.SHAPES["tiny"]._replace(faster=faster), rounds=1)
        assert row["reached"] is reached and row["ratio"] == 0.5
        assert row["note"] == "80 tokens a second against 40, 2.00 times as many"


@pytest.mark.parametrize(
    "said, scores",
    [
        (
            "accuracy 0.9128, macro F1 0.9127, Matthews -0.8259, F1 of 1 0.9140 (872 records)",
            {"accuracy": 0.9128, "macro F1": 0.9127, "Matthews": -0.8259, "F1 of 1": 0.9140},
        ),
        (
            "precision 0.7, recall 0.8, F1 0.75 of entities (9 sentences; 2 words are cut)",
            {"precision": 0.7, "recall": 0.8, "F1": 0.75},
        ),
        (
            "Pearson 0.827406, Spearman 0.820325 (1379 pairs)",
            {"Pearson": 0.827406, "Spearman": 0.820325},
        ),
        ("EM 12.50%, F1 20.00% (177 questions)", {"EM": 12.5, "F1": 20.0}),
    ],
)
def test_scores_of_a_fine_tuning_are_those_of_the_end(said, scores):
    out = (
        f"9 records, 1 subwords\n/a/dev.tsv: EM 1.00%\n/a/dev.tsv: {said}\n/a/test.tsv: EM 2.00%\n"
    )
    found = finetuning.scores_of(out, "/a/dev.tsv")
    assert {name: number for name, (number, _) in found.items()} == scores
    assert {unit for _, unit in found.values()} == {"%" if "%" in said else "score"}


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """(works of bench.finetuning on tmp_path, what they give to the commands: texts of files)."""
    given = []

    def run(command, *options, cwd):
        names = dict(pairwise(options))
        files = {k: Path(names[k]).read_text(encoding="utf-8") for k in ("--train", "--test")}
        given.append((command, files, options))
        return f"{names['--test']}: EM 96.00%, F1 97.00% (3 questions)\n"

    monkeypatch.setattr(finetuning, "run", run)
    setting = finetuning.Setting(
        data=tmp_path, model=tmp_path, parts=tmp_path, more=["--steps", "3"]
    )
    return setting, given


def test_the_parts_of_mrpc_are_those_of_glue(trained, tmp_path):
    (tmp_path / "mrpc").mkdir()
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = ["1\t11\t12\ta\tb\n", "0\t13\t14\tc\td\n", "1\t12\t11\te\tf\n"]
    with gzip.open(tmp_path / "mrpc" / "msr_paraphrase_train.txt.gz", "wt", encoding="utf-8") as f:
        f.write("\ufeff" + head + "".join(rows))
    (tmp_path / "mrpc" / "glue_dev_ids.tsv").write_text("13\t14\n", encoding="utf-8")
    setting, given = trained
    finetuning.mrpc(setting)
    ((command, files, options),) = given
    assert command == "classify" and options[-4:-2] == ("--steps", "3")
    assert files == {"--train": head + rows[0] + rows[2], "--test": head + rows[1]}


def test_the_dev_set_of_cola_is_both_of_the_public_ones(trained, tmp_path):
    (tmp_path / "cola").mkdir()
    for name in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"):
        (tmp_path / "cola" / f"{name}.tsv").write_text(f"x\t1\t\t{name}\n", encoding="utf-8")
    setting, given = trained
    finetuning.cola(setting)
    assert given[0][1]["--test"] == "x\t1\t\tin_domain_dev\nx\t1\t\tout_of_domain_dev\n"


def test_questions_are_held_out_by_article(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(finetuning, "SLICE", 5)
    articles = [
        {"title": str(i), "paragraphs": [{"context": f"{i}.{k}", "qas": [i, k]} for k in range(9)]}
        for i in range(10)
    ]
    (tmp_path / "squad_v11_dev").mkdir()
    with gzip.open(tmp_path / "squad_v11_dev" / "xquad.en.json.gz", "wt", encoding="utf-8") as f:
        json.dump({"data": articles}, f)
    setting, given = trained
    rows = finetuning.squad(setting) + finetuning.squad_by_heart(setting)
    held_out, by_heart = ({k: json.loads(v)["data"] for k, v in x[1].items()} for x in given)
    assert held_out == {"--train": articles[:2], "--test": articles[2:]}
    assert by_heart["--train"] == by_heart["--test"]
    questions = [p["qas"] for p in by_heart["--train"][0]["paragraphs"]]
    assert questions == [[0, 0], [0, 1], [0]]
    assert [r["reached"] for r in rows if r["work"].endswith("EM")] == [None, True]


TABLE = [
    ("mixture", "question EM", 0.19, "score"),
    ("mixture", "similarity Pearson", 0.5, "score"),
    ("a model each", "question EM", 0.2, "score"),
    ("a model each", "similarity Pearson", -0.25, "score"),
]


def test_the_cells_of_a_table_are_read_off():
    columns = {}
    for column, name, number, _ in TABLE:
        columns.setdefault(column, {})[name] = number
    out = "\n".join(["loss 1.00  after 3 steps", "after 3 steps:", *transfer.table(columns), ""])
    found = comparisons.cells(out)
    assert sorted(found) == sorted((name, column, x, unit) for column, name, x, unit in TABLE)


def test_names_of_rows_may_be_indented():
    out = "step 3\n           layers  loss\none          2+2   0.50\n  another      4   0.25"
    assert comparisons.cells(out) == [
        ("one", "loss", 0.5, "score"),
        ("another", "layers", 4, "score"),
        ("another", "loss", 0.25, "score"),
    ]


def test_cells_with_signs_and_brackets_and_without_numbers():
    out = """held out: 3
recipe  masks   parameters        right  NSP
bert    static  1,234 (0.50 P)  12.5%  -"""
    assert comparisons.cells(out) == [
        ("bert", "parameters", 1234, "score"),
        ("bert", "right", 12.5, "%"),
    ]


def test_a_run_takes_the_place_of_the_last_one_of_the_same_work(monkeypatch, tmp_path):
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    rows = [common.row("g", work, "score", 1.0) for work in ("a: x", "a: y", "b: x")]
    assert translation.kept("some", rows[:1]) == []
    (tmp_path / "some.json").write_text(json.dumps({"rows": rows}), encoding="utf-8")
    assert [row["work"] for row in translation.kept("some", rows[:1])] == ["b: x"]


# -- where a step goes, how it grows ---------------------------------------------------------------


def test_the_parts_of_a_step_make_up_the_whole():
    rows = {r["work"]: r for r in breakdown.measure(SMALL, rounds=1, default=[7.0, 8.0])}
    parts = ("matrix products", "passes over arrays", "optimizer", "Python")
    total = sum(rows[name]["tinyfm"]["sum"] for name in parts)
    assert total == pytest.approx(rows["a step"]["tinyfm"]["sum"], rel=1e-4)
    assert rows["op linear"]["note"].count("backward") == 1
    assert rows["a step, glibc's own setting"]["tinyfm"]["sum"] == 7
    assert rows["page faults, glibc's own setting"]["tinyfm"]["sum"] == 8


def test_watching_a_step_changes_nothing_and_counts_its_products():
    batch, results = train_step.batch_of(SMALL), []
    plain = [op.__wrapped__ for op in products.registry]
    for watch in (False, True):
        model = train_step.our_model(SMALL)
        model.eval()  # no dropout
        times, shapes = products.new_times(), []
        if watch:
            with products.watched(times, shapes):
                model(**batch).loss.backward()
        else:
            model(**batch).loss.backward()
        results.append([p.grad for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    assert plain == [op.__wrapped__ for op in products.registry]
    linear = (2 + 2) + (2 + 3 + 2)  # encoder, decoder: of each attention and feed-forward network
    assert len(shapes) == 3 * (linear + 1) + 6 * 3  # the vocabulary, and three attentions
    assert all(forward > 0 and backward > 0 for forward, backward in times.values())
    for a, b in shapes:
        assert a[:-2] == b[:-2] and a[-1] == b[-2]


def test_a_recipe_of_any_length_and_width_is_compared(monkeypatch):
    monkeypatch.setattr(common, "peer", lambda name: None)
    monkeypatch.setattr(scaling.blas, "set_threads", lambda number: None)
    recipe = scaling.Recipe(layers=1, heads=2, width=16, context=8, batch=2)
    row = scaling.compare(recipe, "width 16", rounds=1, threads=1)
    assert row["theirs"] is None and row["tinyfm"]["sum"] > 0


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="Linux counts it")
def test_the_peak_of_memory_is_that_of_a_process_of_its_own():
    small, large = (scaling.peak_of("tinyfm", length) for length in (16, 256))
    assert 0 < small < large


# -- what the results are turned into --------------------------------------------------------------


def test_goals_are_read_off_the_rows():
    ours, theirs = common.Timing((1,), (1,)), common.Timing((2,), (2,))
    for text, goal in (
        ("<= 0.67 x", 0.67),
        ("<= 1 / 4 x", 0.25),
        ("<= 3 + 3, sum <= torch", None),
        ("", None),
    ):
        assert plots.goal_of(common.row("g", "w", "ms", ours, theirs, goal=text)) == goal


def test_pictures_hold_the_rows(tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    def document(name, *rows, **more):
        return {"name": name, "rows": list(rows), **more}

    def row(work, goal=""):
        return common.row("g", work, "ms", 1.0, 2.0, peer="torch", goal=goal)

    kinds = ("length", "width", "memory")
    curve = [{"minutes": 1.0, "bleu": 10.0}, {"minutes": 2.0, "bleu": 20.0}]
    found = [
        document("a", row("w", "<= 0.67 x"), row("v")),
        document("scaling", *(row(f"{kind} {n}") for kind in kinds for n in (64, 128))),
        document("multi30k", curve=curve),
    ]
    drawn = plots.draw(found, tmp_path)
    assert [path.name for path in drawn] == ["goals.png", "scaling.png", "multi30k.png"]
    assert all(path.stat().st_size > 1000 for path in drawn)
    figure = Figure()
    plots.goals(found, figure)
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.5]
    figure = Figure()
    plots.scaling(found[1], figure)
    assert [[line.get_xydata().tolist() for line in axes.lines] for axes in figure.axes] == (
        [[[[64, 1], [128, 1]], [[64, 2], [128, 2]]]] * 3
    )
    figure = Figure()
    plots.multi30k(found[2], figure)
    (line,) = figure.axes[0].lines
    assert line.get_xydata().tolist() == [[1, 10], [2, 20]]


def test_a_run_of_all_says_what_it_leaves_out(tmp_path):
    done = run(["-m", "bench", "--text", str(tmp_path / "nothing")])
    assert done.returncode == 2 and "there is no such file" in done.stderr
    done = run(["-m", "bench", "--help"])
    assert done.returncode == 0 and "--text FILE" in done.stdout


# -- Multi30k --------------------------------------------------------------------------------------


def test_pieces_are_counted_and_joined_again(tmp_path):
    for part in ("train", "valid", "test2016"):
        for side, text in (("en", "a b@@ c a"), ("de", "x b@@ c")):
            with gzip.open(tmp_path / f"{part}.bpe.{side}.gz", "wt", encoding="utf-8") as file:
                file.write(f"{text}\n")
    data = multi30k.Data(tmp_path)
    assert data.pieces == [*multi30k.SPECIAL, "a", "b@@", "c", "x"]
    assert data.pairs["train"] == [([4, 5, 6, 4], [7, 5, 6])]
    assert data.references["valid"] == ["x bc"]
    assert data.text([multi30k.START, 7, 5, 6, multi30k.END, 4]) == "x bc"


def test_the_rate_rises_in_a_line_and_falls_as_a_root():
    assert multi30k.rate(1000, 9000) == pytest.approx(multi30k.PEAK / 2)
    assert multi30k.rate(2000, 9000) == pytest.approx(multi30k.PEAK)
    assert multi30k.rate(8000, 9000) == pytest.approx(multi30k.PEAK / 2)
    assert multi30k.rate(9000, 9000) == pytest.approx(multi30k.rate(9000, 99999) / 1000)


def test_the_model_has_the_published_size():
    model = multi30k.new_model(9712)
    assert sum(p.size for p in model.parameters()) == 2_568_704
