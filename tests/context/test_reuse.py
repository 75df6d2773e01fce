"""Work that is reused or cut up: prefix cache, chunked prefill, preempted requests."""

import pytest

from glm5check.checks import context, decode
from glm5check.errors import UnsupportedError
from glm5check.serving import asking
from glm5check.serving.metrics import parse_metrics

TOKENS = 12
TOP = 20
HITS = "vllm:prefix_cache_hits_total"
PREEMPTIONS = "vllm:num_preemptions_total"
SMALL_KV = ("--num-gpu-blocks-override=48",)
"""768 tokens for 8 requests of 224: some must wait, and some are preempted."""


def counters(server):
    return parse_metrics(server.client.metrics())


def test_a_prefix_cache_hit_changes_nothing(server, context_limit, filler, installation, verdict):
    """The same prompt cold and from the cache: a block that was never written, or another request's, shows here."""
    prompt = filler(min(context_limit - 64, 1500))[7:]
    cold = asking.complete(server.client, "prefix", prompt, max_tokens=TOKENS, top=TOP, ignore_eos=True)
    before = counters(server)
    warm = asking.complete(server.client, "prefix", prompt, max_tokens=TOKENS, top=TOP, ignore_eos=True)
    hits = counters(server).since(before, HITS)
    cause = "a cached block that was never written, of another prefix, or without the indexer's keys"
    verdict(
        decode.same_generations("context.prefix_cache", [warm], [cold], installation, cause=cause)
        + context.was_cached(hits)
    )


def test_chunked_prefill_changes_nothing(server, context_limit, filler, installation, verdict):
    """A prompt longer than one step's token budget, alone and beside others, so that it is cut at other places."""
    budget = server.client.prefill_budget()
    if budget + 64 > context_limit:
        raise UnsupportedError("no prompt is longer than one prefill step", where=f"{budget} tokens a step")
    prompt = filler(min(context_limit - 64, budget + 57))

    def request(name, ids):
        return lambda: asking.complete(server.client, name, ids, max_tokens=TOKENS, top=TOP, ignore_eos=True)

    alone = request("chunked", prompt)()
    others = [request(f"other-{number}", filler(budget // 2 + number)[number:]) for number in range(3)]
    beside = asking.together([*others, request("chunked", prompt)])[-1]
    cause = "partial attention of several chunks is merged wrongly, or positions of later chunks are"
    verdict(decode.same_generations("context.chunked_prefill", [beside], [alone], installation, cause=cause))


@pytest.mark.slow
def test_preempted_requests_go_on_as_before(server, variant, filler, installation, verdict):
    """A second server with little KV memory: requests that lose theirs half way must end as they would have."""
    prompts = {f"preempted-{number}": filler(128 + number)[number:] for number in range(8)}

    def ask(client, name, ids):
        return asking.complete(client, name, ids, max_tokens=96, ignore_eos=True)

    alone = [ask(server.client, name, ids) for name, ids in prompts.items()]
    with variant(*SMALL_KV) as small:
        got = asking.together([lambda n=name, i=ids: ask(small.client, n, i) for name, ids in prompts.items()])
        count = counters(small).values.get(PREEMPTIONS)
    cause = "KV blocks of a preempted request are read by it, or by others, after they were given away"
    verdict(
        decode.same_generations("context.preemption", got, alone, installation, cause=cause)
        + context.was_preempted(count)
    )
