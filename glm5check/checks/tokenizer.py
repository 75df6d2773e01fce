"""Is text turned into the right token ids and back: vocabulary, template, end of sequence, streaming, parsers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from glm5check.checks.decode.judging import judged, nothing, unanswered
from glm5check.checks.decode.texts import REPLACEMENT
from glm5check.records import Finding, Generation, Streamed, Vocabulary

_PRE_TOKENIZER: Final = (
    "another pre-tokenizer: tokenizer.ggml.pre taken for GPT-2's (numbers and contractions split otherwise), or merges "
    "of another model"
)
_TOOL_CALL: Final = re.compile(r"<tool_call>(?P<name>[^<]+)(?P<arguments>.*?)(?:</tool_call>|$)", re.DOTALL)
_ARGUMENT: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_END: Final = (
    "this id is missing from the server's end-of-sequence ids: generation_config.json lists several for GLM-5 "
    "(<|endoftext|>, <|user|>, <|observation|>), and one list may hold the first only"
)
_TEMPLATE: Final = (
    "the chat template: [gMASK]<sop> is written by the template and must not be added by the tokenizer again"
)


def same_vocabulary(gguf: Vocabulary, hf: Vocabulary) -> list[Finding]:
    """The GGUF file and the HF tokenizer have the same tokens, merges, end-of-sequence ids and chat template."""
    check = "tokenizer.same_vocabulary"
    parts: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        "tokens": (gguf.tokens, hf.tokens),
        "merges": (gguf.merges, hf.merges),
        "end-of-sequence ids": ([str(i) for i in sorted(gguf.end_ids)], [str(i) for i in sorted(hf.end_ids)]),
        "chat template": (gguf.template.splitlines(), hf.template.splitlines()),
    }
    findings = []
    for part, (ours, theirs) in parts.items():
        if not ours or not theirs:
            findings.append(nothing(check, f"{gguf.source if not ours else hf.source} has no {part}"))
            continue
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if at is None and len(ours) != len(theirs):
            at = min(len(ours), len(theirs))
        findings.append(
            judged(
                check,
                at is None,
                got=f"{len(ours)} {part}" + ("" if at is None else f", number {at} is {_entry(ours, at)}"),
                want=f"{len(theirs)} {part}" + ("" if at is None else f", number {at} is {_entry(theirs, at)}"),
                where={"part": part},
                cause="the GGUF was converted from another revision than the HF directory is of",
            )
        )
    return findings


def same_ids(
    got: Mapping[str, Sequence[int]], want: Mapping[str, Sequence[int]], texts: Mapping[str, str]
) -> list[Finding]:
    """The server turns each text into the reference tokenizer's ids."""
    check = "tokenizer.same_ids"
    findings = []
    for name, ours in got.items():
        theirs = want[name]
        at = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
        )
        right = list(ours) == list(theirs)
        findings.append(
            judged(
                check,
                right,
                got=f"{len(ours)} ids" + ("" if right else f", {list(ours[at : at + 4])} from position {at}"),
                want=f"{len(theirs)} ids" + ("" if right else f", {list(theirs[at : at + 4])} from position {at}"),
                where={"prompt": name, "text": repr(texts[name][:30])},
                cause=_PRE_TOKENIZER,
            )
        )
    return findings or [nothing(check, "no text was tokenised")]


def begins_once(got: Mapping[str, Sequence[int]], begin: Sequence[int]) -> list[Finding]:
    """Every conversation begins with `begin` (`[gMASK]<sop>`), and holds it nowhere else."""
    check = "tokenizer.begins_once"
    if not begin:
        return [nothing(check, "no beginning is known")]
    findings = []
    for name, ids in got.items():
        starts = [i for i in range(len(ids)) if tuple(ids[i : i + len(begin)]) == tuple(begin)]
        singles = [list(ids).count(token) for token in begin]
        findings.append(
            judged(
                check,
                starts == [0] and all(count == 1 for count in singles),
                got=f"{max(singles)} times, at {starts}; the first ids are {list(ids[:6])}",
                want=f"{list(begin)} once, at the start",
                where={"prompt": name, "position": "0"},
                cause=_TEMPLATE,
            )
        )
    return findings or [nothing(check, "no conversation was tokenised")]


def stops(answers: Mapping[int, Generation]) -> list[Finding]:
    """Every end-of-sequence id ends the answer, by `stop`, and is not part of the text.

    `answers` are what the server said when it was made to generate that id.
    """
    check = "tokenizer.stops"
    findings = unanswered(check, list(answers.values()))
    for token, answer in answers.items():
        if answer.error:
            continue
        right = answer.finish_reason == "stop" and not answer.text.strip() and len(answer.tokens) <= 1
        findings.append(
            judged(
                check,
                right,
                got=f"finish_reason {answer.finish_reason} after {len(answer.tokens)} tokens, {answer.text[:30]!r}",
                want="finish_reason stop at once and no text",
                where={"prompt": answer.prompt, "token": str(token)},
                cause=_END,
            )
        )
    return findings or [nothing(check, "no end-of-sequence id is known")]


def streams_whole(streamed: Sequence[Streamed]) -> list[Finding]:
    """The pieces of a streamed answer join to the whole answer, and no UTF-8 character is broken between two."""
    check = "tokenizer.streams_whole"
    findings = []
    for answer in streamed:
        joined = "".join(answer.pieces)
        broken = REPLACEMENT in joined.rstrip(REPLACEMENT) and REPLACEMENT not in answer.whole.rstrip(REPLACEMENT)
        findings.append(
            judged(
                check,
                joined == answer.whole and not broken,
                got=f"{joined[:60]!r} in {len(answer.pieces)} pieces",
                want=f"{answer.whole[:60]!r}",
                where={"prompt": answer.prompt},
                cause="pieces are decoded on their own, so characters of several tokens break"
                if broken
                else "the detokeniser drops or repeats text at a border",
            )
        )
    return findings or [nothing(check, "nothing was streamed")]


def parses_tool_call(message: Mapping[str, Any], *, plain: str) -> list[Finding]:
    """An answer that calls a tool comes as a tool call, with its name and arguments, not as text.

    `plain` is the same answer unparsed, in GLM-5's form: `<tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value>`.
    """
    check = "tokenizer.parses_tool_call"
    written = [
        (call["name"].strip(), dict(_ARGUMENT.findall(call["arguments"]))) for call in _TOOL_CALL.finditer(plain)
    ]
    if not written:
        return [nothing(check, f"the model called no tool: {plain[:60]!r}")]
    calls = message.get("tool_calls") or []
    got = [(call["function"]["name"], _arguments(call["function"]["arguments"])) for call in calls]
    return [
        judged(
            check,
            got == written,
            got=str(got) if got else f"text {str(message.get('content') or '')[:60]!r}",
            want=f"{written}, as the plain text has it",
            where={"prompt": "weather"},
            cause="the tool-call parser is not GLM-5's (--tool-call-parser glm47 --enable-auto-tool-choice)",
        )
    ]


def separates_reasoning(message: Mapping[str, Any]) -> list[Finding]:
    """Reasoning comes beside the content: neither holds a `<think>` mark."""
    check = "tokenizer.separates_reasoning"
    content = str(message.get("content") or "")
    reasoning = str(message.get("reasoning_content") or message.get("reasoning") or "")
    if not content and not reasoning:
        return [nothing(check, "the answer is empty")]
    marked = [mark for mark in ("<think>", "</think>") if mark in content or mark in reasoning]
    return [
        judged(
            check,
            not marked,
            got=f"content {content[:40]!r}, reasoning {reasoning[:40]!r}",
            want="no <think> mark in either",
            where={"prompt": "reasoning"},
            cause="the reasoning parser is not GLM-5's (--reasoning-parser glm45)",
        )
    ]


def _arguments(text: str | Mapping[str, Any]) -> Any:
    """Arguments come as a JSON text; what is none compares unequal to any arguments."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _entry(values: Sequence[str], at: int) -> str:
    return repr(values[at][:40]) if at < len(values) else "missing"
