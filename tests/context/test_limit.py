"""The last token of the context, and one more."""

from glm5check.checks import context, decode
from glm5check.serving import asking

LAST = 4


def test_a_request_may_fill_the_context(server, context_limit, filler, verdict):
    """Ends exactly at the limit; one token more is refused, and the server serves on."""
    client = server.client
    full = asking.complete(client, "full", filler(context_limit - LAST), max_tokens=LAST, ignore_eos=True)
    over = asking.complete(client, "over", filler(context_limit), max_tokens=1)
    after = asking.complete(client, "after", filler(LAST), max_tokens=1)
    verdict(context.ends_at_limit(full, LAST, over, after) + decode.finite_logprobs([full, after]))
