"""Labels from files: several shapes, one result; refused whole with the place of the fault."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.actions.saes import SaeActions, labels
from engine.actions.saes.labels import read_label_upload, read_labels
from engine.engine import Engine
from engine.errors import InvalidParameter
from engine.events import SaesChanged
from engine.library.errors import SaeNotFound
from engine.library.records import FeatureLabel
from engine.wire import wire
from tests.engine.actions.saes.driving import hearing
from tests.made_saes import make_sae

EngineMaker = Callable[..., Engine]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def lines(*rows: Any) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


SEA = {"feature_idx": 3, "label": "the sea", "density": 0.25, "max_activation": 4.5, "top_tokens": ["sea", "ship"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", lines(SEA)),
        ("a.ndjson.gz", lines(SEA)),
        ("a.json", json.dumps([SEA])),
        ("a.json.gz", json.dumps({"version": 1, "labels": [SEA]})),
        ("a.json", json.dumps({"3": {name: value for name, value in SEA.items() if name != "feature_idx"}})),
        ("a.csv", "index,description,frac_nonzero,maxActApprox,top_tokens\r\n3,the sea,0.25,4.5,sea|ship\r\n"),
        ("a.csv.gz", '\ufefffeature,label,density,max_activation,pos_str\n" 3 ","the sea",0.25,4.5,sea|ship\n'),
    ],
)
def test_every_shape_gives_the_same(tmp_path: Path, name: str, text: str) -> None:
    found = read_labels(write(tmp_path / name, text))
    assert found.labels == (FeatureLabel(3, "the sea", density=0.25, max_activation=4.5, top_tokens=("sea", "ship")),)
    assert found.skipped == 0


def test_an_object_from_feature_to_label(tmp_path: Path) -> None:
    found = read_labels(write(tmp_path / "a.json", '{"7": "ships", "0": "inland", "9": ""}'))
    assert found.labels == (FeatureLabel(0, "inland"), FeatureLabel(7, "ships"))
    assert found.skipped == 1


def test_neuronpedia_explanations(tmp_path: Path) -> None:
    common = {"modelId": "gemma-2-2b", "layer": "20-gemmascope-res-16k", "embedding": [0.1] * 256, "notes": "x" * 600}
    one = {**common, "index": "12", "description": " ships ", "typeName": "oai_token-act-pair", "id": "a1"}
    two = {**common, "index": "12", "description": "boats", "explanationModelName": "gpt-4o-mini"}
    three = {**common, "index": "4", "description": None}
    write(tmp_path / "explanations" / "batch-0.jsonl.gz", lines(one, three))
    write(tmp_path / "explanations" / "batch-1.jsonl.gz", lines(two))
    write(tmp_path / "explanations" / "readme.txt", "nothing")
    found = read_labels(tmp_path / "explanations")
    (label,) = found.labels
    assert (label.feature_idx, label.label, label.source) == (12, "ships", "oai_token-act-pair")
    assert label.extra == {
        "modelId": "gemma-2-2b",
        "layer": "20-gemmascope-res-16k",
        "typeName": "oai_token-act-pair",
        "id": "a1",
        "others": ["boats"],
    }
    assert found.skipped == 1


def test_neuronpedias_answer_about_one_feature(tmp_path: Path) -> None:
    feature = {"index": "5", "maxActApprox": 3.0, "explanations": [{"description": "tides"}, {"description": "waves"}]}
    (label,) = read_labels(write(tmp_path / "a.json", json.dumps(feature))).labels
    assert (label.feature_idx, label.label, label.extra) == (5, "tides", {"others": ["waves"]})


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.jsonl", lines(SEA, {"label": "x"}), "row 2: the feature is 'None'"),
        ("a.jsonl", lines(SEA) + "{", "row 2 is not JSON"),
        ("a.jsonl", lines([1]), "row 1 is not an object"),
        ("a.jsonl", lines({**SEA, "feature_idx": -1}), "row 1: the feature is '-1'"),
        ("a.jsonl", lines({**SEA, "feature_idx": True}), "row 1: the feature is 'True'"),
        ("a.jsonl", lines({**SEA, "label": 5}), "row 1: the label is '5'"),
        ("a.jsonl", lines({**SEA, "density": "often"}), "row 1: density is 'often'"),
        ("a.jsonl", '{"index": 1, "label": "x", "score": NaN}', "row 1: confidence is 'nan'"),
        ("a.json", "5", "neither a list nor an object"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.csv", "index,text\n1,x\n", "no column for the label"),
        ("a.csv", "label\nx\n", "no column for the feature"),
        ("a.txt", "x", "is no file of labels"),
        ("a.json", "[]", "holds no labels"),
        (
            "a.jsonl",
            lines(
                {"modelId": "m", "layer": "1-a", "index": 1, "description": "x"},
                {"modelId": "m", "layer": "2-a", "index": 1, "description": "y"},
            ),
            "more than one SAE",
        ),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why) as refusal:
        read_labels(write(tmp_path / name, text))
    assert refusal.value.param == "path"


def test_files_that_are_damaged_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(SEA).encode())[:-10])
    (tmp_path / "b.jsonl.gz").write_bytes(b"no archive")
    (tmp_path / "c.jsonl").write_bytes(b"\xff\xfe{}")
    for name in ("a.jsonl.gz", "b.jsonl.gz", "c.jsonl"):
        with pytest.raises(InvalidParameter, match=name):
            read_labels(tmp_path / name)
    monkeypatch.setattr(labels, "MOST_BYTES", 1 << 20)
    write(tmp_path / "bomb.jsonl.gz", " " * (1 << 21))
    with pytest.raises(InvalidParameter, match="larger than 1 MiB"):
        read_labels(tmp_path / "bomb.jsonl.gz")
    for path in ("relative.json", "/etc/passwd.json"):
        with pytest.raises(InvalidParameter):
            read_labels(Path(path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidParameter):
        read_labels(tmp_path / "empty")
    with pytest.raises(InvalidParameter):
        read_labels(tmp_path / "nowhere.json")


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine(None)


@pytest.fixture
def saes(engine: Engine, tmp_path: Path) -> SaeActions:
    saes = engine.saes
    saes.import_local(make_sae(tmp_path / "sea"), sae_id="sea")
    return saes


def test_labels_are_stored_with_their_sae(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    heard = hearing(engine, SaesChanged)
    result = saes.import_label_file("sea", write(tmp_path / "a.jsonl", lines(SEA, {"index": 4, "label": ""})))
    assert wire(result) == {"sae_id": "sea", "imported": 1, "skipped": 1}
    assert heard == [SaesChanged()]
    kept = engine.library.labels.get("sea", 3)
    assert kept is not None and (kept.label, kept.top_tokens) == ("the sea", ("sea", "ship"))
    saes.delete("sea")
    assert engine.library.labels.get("sea", 3) is None


def test_labels_of_another_sae_are_refused_whole(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", lines(SEA, {"index": 64, "label": "too far"}))
    with pytest.raises(InvalidParameter):
        saes.import_label_file("sea", file)
    assert engine.library.labels.count("sea") == 0
    with pytest.raises(SaeNotFound):
        saes.import_label_file("unknown", file)


# --- as spreadsheets write them ---------------------------------------------------------------------------------------

SHEET = (FeatureLabel(5, "Größe, naïve", density=0.25, max_activation=4.5), FeatureLabel(7, "ships"))


def sheet(
    delimiter: str = ",", decimal: str = ".", end: str = "\r\n", head: str = "feature_id", space: str = ""
) -> str:
    """The labels of :data:`SHEET` as a program of somebody's writes them."""
    rows = [
        [head, "Description", "Frac Nonzero", "maxActApprox"],
        ["5", '"Größe, naïve"', f"0{decimal}25", f"4{decimal}5"],
        ["7", "ships", "", ""],
    ]
    return end.join((delimiter + space).join(row) for row in rows) + end


@pytest.mark.parametrize(
    "content",
    [
        sheet().encode(),
        sheet(end="\n").encode("utf-8-sig"),
        sheet(end="\r").encode(),
        sheet(";", ",").encode("cp1252"),
        sheet(";", ".").encode("latin-1"),
        ("sep=;\r\n" + sheet(";", ",")).encode(),
        sheet("\t", ",").encode("utf-16"),
        sheet("\t").encode("utf-16-le"),
        b"\xfe\xff" + sheet("\t").encode("utf-16-be"),
        sheet("|").encode(),
        sheet(space=" ").encode(),
        sheet(head=" INDEX ").encode(),
        sheet(head="Feature-Idx").encode(),
        (sheet(";") + ";;;\r\n\r\n").encode(),
        sheet().replace("\r\n5,", "\r\n5.0,").encode(),
        ("\r\n" + sheet()).encode(),
    ],
)
@pytest.mark.parametrize("sent", [False, True])
def test_what_spreadsheets_write_is_read(tmp_path: Path, content: bytes, sent: bool) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    found = labels.read_label_upload(content) if sent else read_labels(tmp_path / "a.csv")
    assert found.labels == SHEET


def test_text_of_several_lines_stays_whole(tmp_path: Path) -> None:
    found = read_labels(write(tmp_path / "a.csv", 'index,label\r\n1,"the sea\r\nand ""ships"""\r\n2,x\r\n'))
    assert [label.label for label in found.labels] == ['the sea\r\nand "ships"', "x"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Latent;Meaning\n5;x\n", r"Its columns are 'Latent', 'Meaning'\."),
        ("", "Its columns are none"),
        ("index,label\n3,the sea, and ships\n", "row 1 has 3 fields for 2 columns"),
        ("index,label,density\n1,x,often\n", "row 1: density is 'often'"),
        ("index\tlabel\tdensity\n1\tx\t1,234\n", "row 1: density is '1,234'"),
        ('index,label\n1,"' + "x" * (1 << 20) + '\n2,y"\n', "no CSV"),
        ("index,label\n1," + "," * (5 << 20), "longer than any row of labels"),
    ],
)
def test_tables_that_cannot_be_read_say_what_was_seen(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        read_labels(write(tmp_path / "a.csv", text))


def test_what_is_no_text_is_refused() -> None:
    for content in (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, b"index,label\n1,\x81\x8d\n", b'{"1": "\xff"}'):
        with pytest.raises(InvalidParameter, match=r"text|zero"):
            labels.read_label_upload(content)


def test_many_labels_of_one_feature_are_all_kept_up_to_a_thousand() -> None:
    rows = [{"index": 1, "label": f"name {n}"} for n in range(1002)]
    (label,) = labels.read_label_upload(lines(*rows[:1001]).encode()).labels
    assert (label.label, len(label.extra["others"]), label.extra["others"][-1]) == ("name 0", 1000, "name 1000")
    with pytest.raises(InvalidParameter, match="row 1002: feature 1 has more than 1,000 labels"):
        labels.read_label_upload(lines(*rows).encode())


def test_a_file_is_read_row_by_row_and_no_further_than_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = labels._label

    def noted(row: Any, where: str) -> Any:
        seen.append(1)
        return plain(row, where)

    monkeypatch.setattr(labels, "_label", noted)
    rows = ", ".join(f'"{n}": "x"' for n in range(1, 300_000))
    for text in (
        '{"a": "x", ' + rows + "}",
        '{"labels": [{"index": -1, "label": "x"}, ' + '{"index": 1}, ' * 200_000 + "1]}",
    ):
        with pytest.raises(InvalidParameter, match="row 1: the feature is"):
            labels.read_label_upload(text.encode())
    assert len(seen) == 2


def test_too_many_features_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_LABELS", 2)
    with pytest.raises(InvalidParameter, match="row 3: the labels speak of more than 2 features"):
        labels.read_label_upload(lines(*({"index": n, "label": "x"} for n in range(3))).encode())


def test_a_label_without_end_is_refused() -> None:
    for content, why in (
        (lines({"index": 1, "label": "x" * 100_001}), "the label has 100,001 characters"),
        ('{"1": "' + "x" * 5_000_000 + '"}', "not JSON: The string is too long"),
        ("index,label\n1," + "x" * 5_000_000, "line 2 is longer than any row"),
    ):
        with pytest.raises(InvalidParameter, match=why):
            labels.read_label_upload(content.encode())


def test_reading_ends_at_a_feature_that_the_sae_has_not() -> None:
    """What follows is not even looked at: here it would be refused."""
    rows = [{"index": 1, "label": "sea"}, {"index": 64, "label": "of another SAE"}, {"index": "x", "label": "?"}]
    found = read_label_upload(json.dumps(rows).encode(), d_sae=64)
    assert [label.feature_idx for label in found.labels] == [64]
    with pytest.raises(InvalidParameter, match="row 3"):
        read_label_upload(json.dumps(rows).encode(), d_sae=65)
