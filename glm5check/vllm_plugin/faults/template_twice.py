"""Conversations begin with `[gMASK]<sop>` twice: written by the template and added by the tokenizer."""

from __future__ import annotations

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_template

FAULT = Fault(
    name="template_twice",
    fault_class=FaultClass.TOKENIZER,
    stands_for="a preamble that is tokenised twice, because the file names no beginning-of-sequence rule",
    seeded="`[gMASK]<sop>` is put in front of every conversation once more",
    caught_by="tests/decode/test_tokenizer.py::test_conversations_begin_once",
    says="the chat template",
    apply=lambda: around_template(lambda text: f"[gMASK]<sop>{text}"),
)
