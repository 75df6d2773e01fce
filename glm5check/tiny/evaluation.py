"""How well a model answers the closed questions and predicts the passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import GlmMoeDsaForCausalLM, PreTrainedTokenizerFast

from glm5check.tiny.corpus import Passage, Question
from glm5check.tiny.dataset import prompt_text
from glm5check.tiny.tokenizer import END_OF_TEXT, USER


@dataclass(frozen=True, slots=True)
class Answered:
    """Whether greedy decoding gives exactly the answer and then ends, and by how much its choices are clear.

    `margin` is the smallest gap, in nats, between the two likeliest tokens over the answer and the token that ends it.
    """

    question: Question
    right: bool
    margin: float


@torch.inference_mode()
def answer_all(
    model: GlmMoeDsaForCausalLM, tokenizer: PreTrainedTokenizerFast, questions: Sequence[Question]
) -> list[Answered]:
    """Score every question by one forward pass over prompt and answer: greedy is right iff every argmax agrees."""
    answered = []
    for question in questions:
        prompt = tokenizer(prompt_text(tokenizer, question), add_special_tokens=False)["input_ids"]
        end = END_OF_TEXT if question.form == "completion" else USER
        answer = tokenizer(question.answer + end, add_special_tokens=False)["input_ids"]
        logits = model(torch.tensor([prompt + answer]), use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        best = logits.topk(2, dim=-1)
        right = bool((best.indices[:, 0] == torch.tensor(answer)).all())
        answered.append(Answered(question, right, float((best.values[:, 0] - best.values[:, 1]).min())))
    return answered


@torch.inference_mode()
def mean_nll(model: GlmMoeDsaForCausalLM, tokenizer: PreTrainedTokenizerFast, passage: Passage) -> float:
    """Mean negative log-likelihood of a passage's tokens, teacher-forced, in nats per token."""
    ids = torch.tensor([tokenizer(passage.text, add_special_tokens=False)["input_ids"]])
    logits = model(ids, use_cache=False).logits[0, :-1].float()
    return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:]))
