"""Every number that decides a verdict, with its unit and its reason. Floors in tok/s live in floors.toml instead."""

from __future__ import annotations

from typing import Final

# --- graphs: what a profile must hold before it can prove anything ---

FULL_GRAPH_MIN_SHARE: Final = 0.5
"""Share of a step's graph-launched kernels in its largest graph, above which the step counts as FULL. A FULL step has
all of them in one graph (a drafter adds small ones); a PIECEWISE step spreads them over at least layers + 1 graphs."""

KERNEL_BEFORE_LAUNCH_US: Final = 50.0
"""Microseconds that a kernel may seem to start before its launch call. The profiler converts GPU to CPU time with an
error of a few microseconds (none was seen in the recordings); reordered or invented times miss by milliseconds."""

MIN_STEADY_STEPS: Final = 8
"""Fewest steady decode steps that a verdict may rest on. A profile of 12 tokens leaves 9; fewer may be all warm-up."""

# --- decode ---

MEAN_KL_FLOAT32: Final = 1e-5
"""nat. Server in float32 on weights dequantised exactly. Right runs were measured at 1.5e-7 (rounding only); the
mildest fault tried, one layer's shared expert with another rank's rows, gives 2.2e-2."""

MEAN_KL_REDUCED: Final = 1e-2
"""nat. Server in float16 or bfloat16, or with kernels that quantise activations; router flips left out. Right runs were
measured up to 2e-3, every mutant of the model at 2.2e-2 and above."""

ROUTER_FLIPS: Final = 0.02
"""Share of positions that the mean leaves out in reduced precision. transformers' bfloat16 against its float32 has a
median of 2e-4 nat, but 0.06 and more at one position of 100, where a router chose another expert: 0.55 at one of 108 on
an H200, between a batch of 9 and the same text alone. A wrong weight shows at all positions."""

FLIP_TEXT_MIN: Final = 8
"""Positions that a text must have for one of them to be a router flip: of fewer, one is too large a part."""

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

NCCL_QUIET_STEPS: Final = 64
"""Decode steps over which NCCL's log must name no all-reduce while it names one all-gather a step: enough that an eager
all-reduce anywhere in a step would show 64 times, and short against the tokens that any benchmark generates."""

# --- dequant: installed kernels against the reference ---

KERNEL_ROUNDINGS: Final = 4.0
"""Roundings to the output type that a kernel may make for a weight or a result: scale, product, difference, store."""

KERNEL_SIGMAS: Final = 7.0
"""Standard deviations of the predicted rounding noise that one result may lie off: 1e-12 by chance, and a wrong kernel
is wrong by the size of the result, tens of deviations at any width."""

KERNEL_RMS_RATIO: Final = 1.5
"""Root-mean-square error over the predicted one. It converges to 1 in right kernels, from below where bounds enter."""

TF32_STEP: Final = 2.0**-10
"""Relative error of a float32 operand that tensor cores read as TF32: ten bits of fraction, the others cut off.
Triton's `tl.dot` does that unless `input_precision="ieee"` is asked for."""

# --- decode: signals without an oracle ---

RUN_OF_ONE_TOKEN: Final = 16
"""Times one token id may stand at the end of an answer that was cut off. No healthy piece of this repository has that
(the self-test counts); answers stuck on NaN or on stale inputs are nothing else from some token on."""

RUN_OF_TOKEN_ZERO: Final = 8
"""The same for token id 0, which NaN logits decode to, anywhere in an answer."""

LOGPROB_ABOVE_ZERO: Final = 1e-3
"""nat that a logprob may exceed 0 by: rounding of a float32 log-softmax at probability 1 stays below 1e-6."""

KL_OF_ONE_POSITION: Final = 10.0
"""Times the bound of the mean above which one position counts as the place where two distributions part."""

FIRST_POSITION_SHARE: Final = 0.02
"""Share of the mean divergence up to which the first position counts as right. It decides the named cause, not the
verdict: wrong rope bases and scales were measured at 1e-7, wrong rows of any expert or value matrix at 0.2 and more."""

SIGNS_OF_GARBAGE: Final = 2
"""Signs in the texts of one test from which they are garbage. One alone may be healthy: 4 of 567 healthy pieces of
documentation and source hold a special token, one in some thousands ends in a cycle."""

CYCLE_WINDOW: Final = 400
CYCLE_UNIT: Final = 40
CYCLE_REPEATS: Final = 8
CYCLE_LENGTH: Final = 120
"""Characters, characters, times, characters: a unit of at most 40, at least 8 times and 120 long, within the last 400.
Garbage of real reports has it in 5 of 11 cases, 567 healthy pieces in none."""

NLL_WINDOWS: Final = (0, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Scored tokens at which windows start: short at first, then borders at index_topk (2,048) and at KV pages."""

NLL_WINDOW_MIN: Final = 64
"""Scored tokens that a window must hold: in bfloat16 the mean of 64 differs from a right oracle's by under 0.02 nat."""

CLOSED_QUESTIONS_SHARE: Final = 0.9
"""Share of closed questions that a model answers which was not trained on them. The embedded one must answer all."""

ORACLES_KL: Final = 2e-2
"""nat, mean over one prompt. llama.cpp quantises activations: on random tokens it was measured at 3.6e-3 from
transformers on average, single prompts up to three times that; mutants of the model start at 2.9e-2."""

ROUTER_WEIGHT_FLOAT32: Final = 1e-4
"""Share of the routed scale that a router weight may be off: a float32 sigmoid and division round to about 1e-6."""

ROUTER_WEIGHT_REDUCED: Final = 1e-2
"""The same where logits or weights pass through bfloat16 (2^-8 relative, twice)."""

ROUTER_TIES: Final = 0.02
"""Share of tokens at which reduced precision may choose another expert of two that are as good."""

HIDDEN_FLOAT32: Final = 1e-4
"""Relative error of a layer output in float32: right runs add about 1e-6 a layer, one wrong row of 512 gives 4e-2."""

HIDDEN_REDUCED: Final = 0.15
"""The same in bfloat16, where a layer adds about 1e-2 and a router flip moves one MLP output by a tenth."""

# --- throughput: when repeated measurements decide ---

SPEED_LOOKS: Final = (18, 24, 36, 54)
"""Rounds after which the interval is looked at. 18 is the fewest that can decide at SPEED_ERROR over four looks; the
last is the budget: about a minute of single-stream decode at 60 tok/s and 64 tokens a round."""

SPEED_BUDGET_S: Final = 240.0
"""Seconds after which no round of a group of workloads is begun: 18 rounds of the ladder at 60 tok/s and an 8,192-token
prompt of 2 s. A free machine needs 20 to 240; one so busy that it needs more will not decide anything."""

SPEED_BUDGET_EMBEDDED_S: Final = 20.0
"""The same for the embedded model on a CPU within the whole suite, which is to take under three minutes. What a free
machine does not decide in it stays inconclusive; `-m perf` has SPEED_BUDGET_S."""

SPEED_ERROR: Final = 5e-5
"""Chance that one verdict fails a quantity whose true median is exactly its floor. A night has under 20 such verdicts,
so fewer than one night in 1,000 alarms falsely."""

REGRESSION_ERROR: Final = 1.25e-5
"""Chance that one comparison with a baseline alarms falsely (one-sided Mann-Whitney): a quarter of SPEED_ERROR, since
rounds are compared at up to four looks."""

REGRESSION_EFFECT: Final = 0.02
"""Least loss that fails: restarts alone move the median of a quiet server by about one percent."""

REGRESSION_DROP: Final = 0.05
"""Loss that must be excluded to pass; what cannot exclude it is inconclusive."""

COUNTERS_APART: Final = 0.02
"""Share by which the client's tokens or requests may differ from the server's counters. Both count the same events; the
allowance is for one health probe among the requests."""

STALL_FACTOR: Final = 3.0
"""Times the typical time a token above which a gap is a stall. Batching, a scheduler hiccup or a graph of another size
stays below two."""

STALL_SHARE: Final = 0.01
"""Share of gaps that may be stalls: the p99 that users see. One in 50 tokens is twice that."""

STALL_CONFIDENCE: Final = 0.9999
"""Two-sided confidence of the interval of that share: SPEED_ERROR a side."""

BUNCHED_SHARE: Final = 0.05
"""Share of chunks that may arrive together with the one before while single late tokens are still judged. On a free
machine it is under 1 %."""

CLIENT_BUSY: Final = 0.5
"""Cores that the load client may use before it may be what is measured. It saturates at one; 50,000 tok/s cost 0.25
to 0.4."""

CLIENTS_APART: Final = 0.02
"""Share by which two load clients may differ on one server. Their definitions are the same; what remains is how each
opens connections and when it starts its clock."""

CLIENTS_CONFIDENCE: Final = 0.95
"""Of the interval of their median ratio."""

NEIGHBOURS_BUSY: Final = 0.10
"""Share of the machine's CPUs that other programs may take while something is measured. Above it, slow says nothing."""

CORE_WITHHELD: Final = 0.01
"""Share of the time for which a process that wakes up may have to wait for its core while slow is still the server's
fault, where CPUs serve. It is 0.001 to 0.002 beside a right server. Stalls of the machine that make one token in 100
late by twice its time withhold 0.01 at least."""

CLOCK_SHARE: Final = 0.8
"""Share of its highest SM clock below which a busy GPU is not at full speed. An H200 at its power limit (dense matrix
products, which decode is far from) was recorded at 0.85 to 0.96, copying memory at 1.0."""

CLOCK_BUSY: Final = 50
"""Utilisation in percent from which a GPU counts as busy; idle ones clock down on purpose."""

BOUND_EXCESS: Final = 1.02
"""Times the roofline bound above which a measurement is wrong: measured bandwidth itself repeats to 1 or 2 percent."""

HOST_STEP_S: Final = 3.5e-3
"""Seconds that vLLM's own processes may take for a decode step of one stream with full graphs, whatever the model: the
GPU's work overlaps with it, so it counts only for models with less. Small models on four hosts of H200s took 2.1 to 3.3
ms a step with 1.6 to 2.2 ms of work; with 14.3 ms of work the gaps were 0.1. PIECEWISE took 4.3 to 9.5, eager 11 to 34.
No floor is asked for above 286 tok/s; GLM-5 whole is far below on any machine."""

BOUND_SHARE: Final = 0.30
"""Share of the roofline bound that a GPU deployment must reach where it has no floor of its own. Of a bound of 162
tok/s (8 PCIe GPUs, Q4_K, NCCL's low-latency protocol) the healthy deployment reached 57 (0.35), the one without that
protocol 43 (0.27), the eager one 20 (0.12)."""

LADDER_SHARE: Final = 0.9
"""Least output of a rung of the concurrency ladder over that of the rung below: more streams must not give less."""

LONG_CONTEXT_SHARE: Final = 0.7
"""Least decode speed at long context over that at short, after what the roofline allows for the longer cache."""

PREFILL_FACTOR: Final = 3.0
"""Least input tok/s of prefill over decode tok/s of one stream: a step that reads the weights once for many tokens."""

FIRST_TOKEN_STEPS: Final = 25.0
"""Most decode steps that a short prompt's first token may take. Measured: 3 (CPU) to 15 (H200: eager prefill of 2.5 ms
steps)."""

HOST_SHARE: Final = 0.84
"""Share of the expected speed that a server on the reference CPU must reach where the interpreter, not memory, is the
limit. Medians of right servers were 0.94 to 1.10 of it, of servers with 30 % slower decode 0.70 to 0.75: about halfway
between."""

HOST_SHARE_ELSEWHERE: Final = 0.5
"""The same on another CPU: how interpreter, small matrices and process switches compare differs between CPUs."""

# --- checkpoint ---

GGUF_FLOAT_RELATIVE: Final = 1e-6
"""Relative. GGUF stores scales and bases as float32, which round to 6e-8; two settings in use differ by far more."""

# --- context and speculative decoding ---

SOAK_LIMIT_S: Final = 60.0
"""Seconds that one request of a soak may take. They take under a second; a hang takes for ever."""

DRAFTS_MIN: Final = 20
"""Drafts that a share of accepted ones must rest on."""

ACCEPTED_MIN: Final = 0.3
"""Share of drafts accepted at each position on text that repeats itself. Healthy ngram drafts reach 0.6 and more there;
reports of faults had 0.000, 0.01 and, at the second position, 0.1."""

# --- collectives: what a decode step's time may go to ---

SMALL_MESSAGE_BYTES: Final = 64 << 10
"""Bytes up to which NCCL's Simple protocol is never the right choice for a latency-bound all-reduce: its
synchronisation costs more than the data. Measured at 12,288 bytes on two NVLink GPUs: 28.8 us, LL 7.4 us."""

NET_OVER_PREFLIGHT: Final = 1.5
"""How much longer an all-reduce may take net inside the server than replayed alone: between other kernels its buffers
are not in cache and its channels compete for the GPU. A wrong protocol or route costs a factor of two and more."""

IDLE_SHARE: Final = 0.5
"""Share of a step that gaps between kernels or waiting for other ranks may take. More than half idle means that neither
the memory nor the wire bounds the step. Recordings of a small model: 30 to 39 % in FULL graphs, 80 % PIECEWISE, 94 %
eager."""

JUDGED_WORK_US: Final = 300.0
"""Work in a step (all but gaps and waiting) from which idling is judged. vLLM's own processes take HOST_STEP_S or a
little less: a model with far less work idles whatever is right (the embedded one has 220 us on an H200). GLM-5 whole on
eight B200s has 1,100: 340 to read its weights, and 157 all-reduces of 5."""

BANDWIDTH_OVERSHOOT: Final = 1.02
"""Effective over measured memory bandwidth above which the measurement is wrong: more cannot be read than the memory
gives, and 2 % is what the bandwidth measurement itself varies by."""
