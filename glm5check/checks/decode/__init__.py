"""Is what the server decodes what the model says? One module a signal family, from the most trusted to the least.

finiteness      numbers that are none, requests that fail, one token id over and over: no reference, no tolerance
distributions   against an oracle: mean KL on random token ids, logprobs, greedy ids up to the first near-tie
likelihood      against an oracle: negative log-likelihood of fixed passages, by position window
consistency     against itself: generated tokens scored again as a prompt; the same request twice
questions       closed questions with one right answer, every slot of a batch
texts           how garbage looks: tail cycles, U+FFFD, special tokens, answers that do not end; only two together count
agreement       oracles against each other, so that a case in which they differ judges nobody
layers          hidden states against an oracle, so that a failure names the first layer that differs
whitebox        what a probe saw inside: attention output rows, router weights and bias

No compression ratio and no distinct-n: they fire on healthy JSON and lists.
"""

from glm5check.checks.decode.agreement import agreed_scores, oracles_agree
from glm5check.checks.decode.consistency import decode_matches_prefill, same_generations, same_scores
from glm5check.checks.decode.distributions import greedy_ids, kl_divergence, mean_kl, token_logprobs
from glm5check.checks.decode.finiteness import finite_logprobs, token_runs
from glm5check.checks.decode.layers import hidden_states
from glm5check.checks.decode.likelihood import nll_by_window, passage_nll
from glm5check.checks.decode.questions import Question, closed_questions
from glm5check.checks.decode.texts import garbled_text, text_signals
from glm5check.checks.decode.whitebox import attention_outputs, router_weights

__all__ = [
    "Question",
    "agreed_scores",
    "attention_outputs",
    "closed_questions",
    "decode_matches_prefill",
    "finite_logprobs",
    "garbled_text",
    "greedy_ids",
    "hidden_states",
    "kl_divergence",
    "mean_kl",
    "nll_by_window",
    "oracles_agree",
    "passage_nll",
    "router_weights",
    "same_generations",
    "same_scores",
    "text_signals",
    "token_logprobs",
    "token_runs",
]
