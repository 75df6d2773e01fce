"""Do the collectives of a decode step run inside captured CUDA graphs? Two witnesses: the trace, and NCCL's own log."""

from glm5check.checks import graphs
from glm5check.checks.contradictions import nothing_contradicts
from glm5check.tolerances import NCCL_QUIET_STEPS


def test_graphs_are_on(evidence, verdict):
    """The server's log: graphs were asked for and captured, and no line takes them back.

    Says what was set up, not what ran: a batch above the largest captured size runs eagerly without any line.
    """
    verdict(graphs.graphs_are_on(evidence))


def test_the_log_names_no_slow_path(evidence, verdict):
    """vLLM says once, at start, that it has no fast kernel for the experts' quant type; speed is then a tenth."""
    verdict(graphs.no_slow_path(evidence))


def test_every_step_ran_in_the_expected_mode(evidence, verdict):
    """FULL where it was asked for, PIECEWISE where that was; from how the kernels of each step were launched."""
    verdict(graphs.every_step_ran_in_the_expected_mode(evidence))


def test_all_reduces_are_in_graphs(evidence, verdict):
    """Each all-reduce of each steady step on each rank has the correlation id of a graph launch, PIECEWISE or FULL."""
    verdict(graphs.all_reduces_are_in_graphs(evidence))


def test_each_step_has_every_all_reduce(evidence, expectations, verdict):
    """2 x layers + 1 a step on every rank. More or fewer mean that the trace does not show what we think it does."""
    verdict(graphs.all_reduces_are_complete(evidence, expectations.all_reduces))


def test_the_chosen_all_reduce_ran(evidence, verdict):
    """The kernels are of the backend that the server's own log line puts first for messages of this size."""
    verdict(graphs.the_chosen_family_ran(evidence))


def test_nccl_is_silent_while_graphs_replay(evidence, verdict):
    """NCCL logs host calls; a replay makes none. The logits' eager all-gather, one a step, proves that it logs."""
    verdict(graphs.nccl_was_silent(evidence, steps=NCCL_QUIET_STEPS))


def test_log_metrics_trace_and_configuration_agree(evidence, verdict):
    """Where two of them speak of the same thing, both can be true."""
    verdict(nothing_contradicts(evidence))


def test_the_profile_is_of_the_measured_server(evidence, measured_identity, verdict):
    """One fingerprint: a profile of another start, such as an eager one, explains nothing about this server's speed."""
    verdict(graphs.same_run(evidence.fingerprint, measured_identity))
