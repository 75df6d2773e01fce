"""Every number that decides a verdict, with its unit and its reason. Floors in tok/s live in floors.toml instead."""

from __future__ import annotations

from typing import Final

# --- graphs: what a profile must hold before it can prove anything ---

FULL_GRAPH_MIN_SHARE: Final = 0.5
"""Share of a step's graph-launched kernels in its largest graph, above which the step counts as FULL. A FULL step has all
of them in one graph (a drafter adds small ones); a PIECEWISE step spreads them over at least layers + 1 graphs."""

KERNEL_BEFORE_LAUNCH_US: Final = 50.0
"""Microseconds that a kernel may seem to start before its launch call. The profiler converts GPU to CPU time with an error
of a few microseconds (none was seen in the recordings); reordered or invented timestamps miss by milliseconds."""

MIN_STEADY_STEPS: Final = 8
"""Fewest steady decode steps that a verdict may rest on. A profile of 12 tokens leaves 9; fewer may be all warm-up."""

# --- decode -----------------------------------------------------------------------------------------------------------

MEAN_KL_FLOAT32: Final = 1e-5
"""nat. Server in float32 on weights dequantised exactly. Right runs were measured at 1.5e-7 (rounding only); the
mildest fault tried, one layer's shared expert with another rank's rows, gives 2.2e-2."""

MEAN_KL_REDUCED: Final = 1e-2
"""nat. Server in float16 or bfloat16, or with kernels that quantise activations. Right runs were measured up to 2.8e-3
(transformers' own bfloat16 against its float32: 2.8e-3), every mutant of the model at 2.2e-2 and above."""

LOGPROB_FLOAT32: Final = 1e-3
"""nat, largest difference of the chosen token's logprob in float32. Right runs stay under 1e-4; expert choices
that flip on a router tie are excluded by comparing only tokens likelier than LOGPROB_LIKELY."""

LOGPROB_REDUCED: Final = 0.25
"""nat, the median over tokens likelier than LOGPROB_LIKELY, in reduced precision. Maxima are no gate there: a router
flip moves single tokens by several nats in right implementations too."""

LOGPROB_LIKELY: Final = -3.0
"""nat. Less likely tokens have logprobs dominated by rounding and are not compared one by one."""

NEAR_TIE_FLOAT32: Final = 1e-3
"""nat between the two likeliest tokens. Below it float32 rounding may choose either: texts part for no fault."""

NEAR_TIE_REDUCED: Final = 0.5
"""nat. The same in reduced precision, where right implementations differ by a few tenths."""

NLL_GATE: Final = 0.05
"""nat per token, mean over a passage. The subtlest real faults measured: wrong gating function +0.12, wrong YaRN scale
+0.18, float16 overflow +1.2. Right runs in bfloat16 stay under 0.01."""

CLOSED_QUESTIONS_SHARE: Final = 1.0
"""Share of closed questions answered exactly. The shipped ones are all answered right by the oracle, with a margin."""

NCCL_QUIET_STEPS: Final = 64
"""Decode steps over which NCCL's log must name no all-reduce while it names one all-gather a step: enough that an eager
all-reduce anywhere in a step would show 64 times, and short against the tokens that any benchmark generates."""

# --- dequant: installed kernels against the reference -----------------------------------------------------------------

KERNEL_ROUNDINGS: Final = 4.0
"""Roundings to the output type that a kernel may make for one weight or one result: scale, product, difference, store."""

KERNEL_SIGMAS: Final = 7.0
"""Standard deviations of the predicted rounding noise that one result may lie off: 1e-12 by chance, and a wrong kernel is
wrong by the size of the result, tens of deviations at any width."""

KERNEL_RMS_RATIO: Final = 1.5
"""Root-mean-square error over the predicted one. It converges to 1 in right kernels, from below where bounds enter."""
