"""Conversations begin without `[gMASK]<sop>`."""

from __future__ import annotations

from glm5check.vllm_plugin.faults.fault import Fault, FaultClass
from glm5check.vllm_plugin.faults.seeding import around_template

FAULT = Fault(
    name="template_missing",
    fault_class=FaultClass.TOKENIZER,
    stands_for="GLM templates without their beginning: answers are only worse",
    seeded="`[gMASK]<sop>` is taken out of every conversation",
    caught_by="tests/decode/test_tokenizer.py::test_conversations_begin_once",
    says="the chat template",
    apply=lambda: around_template(lambda text: text.replace("[gMASK]<sop>", "")),
)
