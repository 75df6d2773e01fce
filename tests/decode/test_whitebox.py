"""What a probe sees inside the workers: only where the server was started with it."""

from glm5check.checks import decode
from glm5check.glm5.dimensions import Dimensions, read_hf_config


def test_attention_writes_every_row_it_returns(sight, verdict):
    """Output buffers are filled with NaN before each attention call: a row that is not written stays NaN, and a tensor
    that was not written is another one. The graph of a decode step is captured anew with this in it. Cannot see a row
    that is written wrongly."""
    verdict(decode.attention_outputs(sight.attention, sight.steps))


def test_routers_choose_and_weight_experts_as_glm5_does(sight, stored_biases, settings, installation, verdict):
    """Gating function, bias, normalisation and routed scale, from the logits that the router was really given."""
    dimensions = Dimensions.from_hf(read_hf_config(settings.config))
    verdict(decode.router_weights(sight.routers, dimensions, stored_biases, installation))


def test_layers_compute_what_the_oracle_computes(sight, open_oracle, installation, verdict):
    """Outputs of each attention and each MLP at one token; the failure names the first that differs. Compiled code has
    no such places: a server that runs it leaves this open."""
    want = open_oracle.hidden_states(sight.prompt_ids)
    verdict(decode.hidden_states(sight.prompt, sight.places, want, installation))
