"""The embedded model is the one that its manifest describes, fits the repository and answers what it should."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoTokenizer

from fixtures.options import DATA, EMBEDDED
from glm5check.checkpoint.index import GgufSet
from glm5check.errors import CheckpointError
from glm5check.oracles.hf import load_model
from glm5check.tiny import corpus
from glm5check.tiny.build import MANIFEST, file_facts
from glm5check.tiny.dataset import prompt_text, tokenizer_texts
from glm5check.tiny.decode_data import SURE_MARGIN
from glm5check.tiny.evaluation import answer_all, mean_nll
from glm5check.tiny.tokenizer import TOKEN_COUNT, VOCAB_SIZE, save_tokenizer, special_id, train_tokenizer

FIRST = EMBEDDED / "glm5-tiny-UD-Q4_K_XL-00001-of-00003.gguf"
MANIFEST_CONTENT = json.loads((EMBEDDED / MANIFEST).read_text(encoding="utf-8"))
QUESTIONS = [corpus.Question(**entry) for entry in json.loads((DATA / "decode" / "questions.json").read_text("utf-8"))]
PASSAGES = json.loads((DATA / "decode" / "passages.json").read_text("utf-8"))
LARGEST_FOLDER = 16 * 2**20
"""Bytes: what a clone should cost at most."""
UNIFORM_NLL = 6.93
"""Nats: ln 1024, what a model that knows nothing scores."""


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(EMBEDDED)


@pytest.fixture(scope="module")
def model():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_model(FIRST, EMBEDDED)
    torch.set_num_threads(threads)


def test_files_are_those_of_the_manifest():
    files = {path.name: file_facts(path) for path in EMBEDDED.iterdir() if path.name != MANIFEST}
    assert files == MANIFEST_CONTENT["files"]


def test_folder_is_small():
    assert sum(path.stat().st_size for path in EMBEDDED.iterdir()) < LARGEST_FOLDER


def test_nearly_all_questions_were_right_when_built():
    score = MANIFEST_CONTENT["questions"]
    assert score["total"] == len(corpus.questions())
    assert score["right"] >= 0.97 * score["total"]


def test_set_has_no_defect_and_its_first_file_no_tensor():
    opened = GgufSet.open(FIRST)
    assert opened.defects == ()
    assert [len(header.tensors) for header in opened.headers] == [0, 34, 33]


def test_shipped_questions_are_questions_of_the_corpus_over_every_kind():
    assert set(QUESTIONS) <= set(corpus.questions())
    assert {q.kind for q in QUESTIONS} == {q.kind for q in corpus.questions()}
    assert 35 <= len(QUESTIONS) <= 45


def test_shipped_questions_are_answered_surely(model, tokenizer):
    """Float32 on the dequantised files; what a server answers is for the acceptance suite."""
    unsure = [a for a in answer_all(model, tokenizer, QUESTIONS) if not a.right or a.margin < SURE_MARGIN]
    assert not unsure


def test_llama_cpp_gives_the_same_answers():
    """An implementation that shares nothing with this project: tokenizer, template, dequantisation and arithmetic."""
    xllamacpp = pytest.importorskip("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(FIRST)
    parameters.n_ctx, parameters.n_parallel, parameters.warmup = 512, 1, False
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    for question in QUESTIONS:
        options = {"max_tokens": 32, "temperature": 0}
        if question.form == "completion":
            choice = server.handle_completions({"prompt": question.prompt, **options})["choices"][0]
            text = choice["text"]
        else:
            messages = [{"role": "user", "content": question.prompt}]
            choice = server.handle_chat_completions({"messages": messages, **options})["choices"][0]
            text = choice["message"]["content"]
        assert (text, choice["finish_reason"]) == (question.answer, "stop")


def test_a_wrong_answer_is_seen(model, tokenizer):
    wrong = corpus.Question("wrong", "capital", "completion", "The capital of France is", " Rome.")
    (answered,) = answer_all(model, tokenizer, [wrong])
    assert not answered.right


def test_an_answer_that_does_not_end_is_seen(model, tokenizer):
    cut = corpus.Question("cut", "count", "completion", "Count: 1, 2, 3,", " 4, 5,")
    (answered,) = answer_all(model, tokenizer, [cut])
    assert not answered.right


def test_passages_are_long_enough_and_better_than_chance(model, tokenizer):
    assert {entry["language"] for entry in PASSAGES} == {"en", "zh", "code"}
    for entry in PASSAGES:
        passage = corpus.Passage(entry["name"], entry["language"], entry["text"], "")
        assert 150 <= len(tokenizer(entry["text"])["input_ids"]) <= 400
        assert mean_nll(model, tokenizer, passage) < UNIFORM_NLL / 2


def test_routers_have_a_bias_as_glm_does(model):
    for layer in model.model.layers[1:]:
        assert layer.mlp.gate.e_score_correction_bias.std() > 0


def test_a_set_without_one_of_its_tensors_is_refused(tmp_path):
    for path in EMBEDDED.iterdir():
        (tmp_path / path.name).write_bytes(
            path.read_bytes().replace(b"blk.2.attn_k_b.weight", b"blk.2.attn_x_b.weight")
        )
    with pytest.raises(CheckpointError, match=r"blk\.2\.attn_k_b"):
        load_model(tmp_path / FIRST.name, tmp_path)


def test_one_seed_gives_the_shipped_tokenizer(tmp_path):
    save_tokenizer(train_tokenizer(tokenizer_texts(MANIFEST_CONTENT["seed"])), tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (EMBEDDED / "tokenizer.json").read_bytes()


def test_special_tokens_have_their_ids_and_padding_is_never_produced(tokenizer):
    assert tokenizer.convert_tokens_to_ids("<|user|>") == special_id("<|user|>")
    assert len(tokenizer) == TOKEN_COUNT < VOCAB_SIZE


def test_chat_template_has_the_prefix_once_and_no_thoughts_unless_asked(tokenizer):
    question = corpus.Question("q", "k", "chat", "Hi", "")
    assert prompt_text(tokenizer, question) == "[gMASK]<sop><|user|>Hi<|assistant|><think></think>"
    messages = [{"role": "user", "content": "Hi"}]
    thinking = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=True)
    assert thinking == "[gMASK]<sop><|user|>Hi<|assistant|><think>"


def test_chat_template_writes_tools_calls_and_results(tokenizer):
    messages, tools = corpus.weather_chat("Oslo", "cold"), [corpus.DATA["weather_tool"]]
    text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    assert text.startswith("[gMASK]<sop><|system|>\n# Tools")
    assert '"name": "get_weather"' in text
    assert "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>" in text
    assert "<|observation|><tool_response>cold</tool_response><|assistant|>" in text
