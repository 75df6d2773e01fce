"""Which rows, columns and heads of little tensors each rank must hold, counted out by hand."""

from pathlib import Path

import pytest
from gguf.constants import GGMLQuantizationType as Q

from glm5check.checkpoint.header import TensorInfo
from glm5check.errors import CheckpointError
from glm5check.glm5.tensors import Split, TensorRole, TensorSpec
from glm5check.sharding.partition import Parameter, module_of, partition, piece_of

FILE = Path("glm-5.gguf")


def spec(name, split, shape, *, merged="", slot=0, hf="model.x.weight", layer=3):
    return TensorSpec(TensorRole(name, hf, ("",) * len(shape), split, merged, slot), layer, name, hf, shape)


def info(name, shape, qtype=Q.F32):
    return TensorInfo(name=name, qtype=qtype, shape=shape, file=FILE, offset=0)


def piece(split, shape, ranks, rank, qtype=Q.F32):
    return piece_of(spec("blk.3.t", split, shape), info("blk.3.t", shape, qtype), ranks, rank)


@pytest.mark.parametrize(
    ("split", "shape", "ranks", "rank", "rows", "columns"),
    [
        (Split.REPLICATED, (6, 64), 2, 1, range(6), range(64)),
        (Split.REPLICATED, (64,), 2, 1, range(1), range(64)),
        (Split.ROWS, (6, 64), 1, 0, range(6), range(64)),
        (Split.ROWS, (6, 64), 2, 1, range(3, 6), range(64)),
        (Split.ROWS, (6, 64), 3, 1, range(2, 4), range(64)),
        (Split.COLUMNS, (6, 64), 1, 0, range(6), range(64)),
        (Split.COLUMNS, (6, 64), 2, 1, range(6), range(32, 64)),
        (Split.EXPERT_ROWS, (4, 6, 64), 2, 1, range(3, 6), range(64)),
        (Split.EXPERT_COLUMNS, (4, 6, 64), 2, 0, range(6), range(32)),
    ],
)
def test_ranges_of_a_rank(split, shape, ranks, rank, rows, columns):
    held = piece(split, shape, ranks, rank)
    assert (held.rows, held.columns, held.heads, held.padding) == (rows, columns, None, 0)
    assert held.tensor.shape == shape


@pytest.mark.parametrize(("ranks", "rank", "heads"), [(1, 0, range(6)), (2, 1, range(3, 6)), (3, 0, range(2))])
def test_heads_of_a_rank_have_all_their_rows_and_columns(ranks, rank, heads):
    held = piece(Split.HEADS, (6, 8, 64), ranks, rank)
    assert (held.rows, held.columns, held.heads) == (range(8), range(64), heads)


@pytest.mark.parametrize(
    ("vocabulary", "ranks", "shares"),
    [
        (100, 1, [(range(100), 28)]),
        (128, 2, [(range(64), 0), (range(64, 128), 0)]),
        (129, 2, [(range(96), 0), (range(96, 129), 63)]),
        (100, 4, [(range(32), 0), (range(32, 64), 0), (range(64, 96), 0), (range(96, 100), 28)]),
        (40, 4, [(range(16), 0), (range(16, 32), 0), (range(32, 40), 8), (range(40, 40), 16)]),
    ],
)
def test_a_vocabulary_is_padded_to_64_rows_and_then_shared(vocabulary, ranks, shares):
    held = [piece(Split.VOCAB, (vocabulary, 64), ranks, rank) for rank in range(ranks)]
    assert [(one.rows, one.padding) for one in held] == shares
    assert {one.columns for one in held} == {range(64)}


@pytest.mark.parametrize(
    ("split", "shape", "qtype", "ranks", "what"),
    [
        (Split.ROWS, (6, 64), Q.F32, 4, "4 ranks cannot share 6 rows of blk.3.t evenly"),
        (Split.COLUMNS, (6, 64), Q.F32, 3, "3 ranks cannot share 64 columns of blk.3.t evenly"),
        (Split.HEADS, (6, 8, 64), Q.F32, 4, "4 ranks cannot share 6 heads of blk.3.t evenly"),
    ],
)
def test_what_cannot_be_shared_says_what_where_and_what_to_do(split, shape, qtype, ranks, what):
    with pytest.raises(CheckpointError) as caught:
        piece(split, shape, ranks, 0, qtype)
    assert (caught.value.what, caught.value.where) == (what, "glm-5.gguf")
    assert caught.value.do == "serve on a number of ranks that divides them"


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_columns_inside_of_a_block_are_refused_on_every_rank(rank):
    """96 columns in blocks of 32 for two ranks: rank 0 would end, rank 1 begin inside of a block."""
    with pytest.raises(CheckpointError) as caught:
        piece(Split.COLUMNS, (6, 192), 4, rank, Q.Q8_0)
    assert caught.value.what == "48 columns of blk.3.t for each of 4 ranks are no whole blocks of 32"
    assert caught.value.where == "glm-5.gguf"
    assert caught.value.do == "serve on fewer ranks, or quantise this tensor with smaller blocks"


def test_columns_as_bytes_of_a_row():
    """Q8_0: 32 weights in 34 bytes; F32: one in four."""
    assert piece(Split.COLUMNS, (6, 128), 2, 1, Q.Q8_0).column_bytes == range(68, 136)
    assert piece(Split.COLUMNS, (6, 128), 2, 1).column_bytes == range(256, 512)


@pytest.mark.parametrize(
    ("one", "module"),
    [
        (
            spec("a", Split.ROWS, (2, 2), hf="model.layers.3.self_attn.q_b_proj.weight"),
            "model.layers.3.self_attn.q_b_proj",
        ),
        (spec("a", Split.REPLICATED, (2,), hf="gate.e_score_correction_bias"), "gate.e_score_correction_bias"),
        (
            spec("a", Split.ROWS, (2, 2), merged="model.layers.{layer}.mlp.gate_up_proj"),
            "model.layers.3.mlp.gate_up_proj",
        ),
        (
            spec("a", Split.EXPERT_ROWS, (4, 2, 2), merged="model.layers.{layer}.mlp.experts.w13"),
            "model.layers.3.mlp.experts.routed_experts.w13",
        ),
        (spec("a", Split.EXPERT_COLUMNS, (4, 2, 2)), "model.layers.3.mlp.experts.routed_experts.w2"),
        (spec("a", Split.VOCAB, (2, 2), hf="lm_head.weight", layer=None), "lm_head"),
        (spec("a", Split.ROWS, (2, 2), merged="a.{layer}b", layer=None), "a.b"),
    ],
)
def test_the_module_that_holds_a_tensor(one, module):
    assert module_of(one) == module


GATE = spec("gate", Split.ROWS, (4, 64), merged="m.gate_up", slot=0)
UP = spec("up", Split.ROWS, (8, 64), merged="m.gate_up", slot=1)
TABLE = {"gate": info("gate", (4, 64)), "up": info("up", (8, 64), Q.Q8_0)}


def held(*specs, table=TABLE, ranks=2, rank=1):
    return list(partition(specs, table, ranks, rank))


def test_merged_parts_lie_in_the_order_of_their_slots_whatever_the_order_of_the_table():
    (parameter,) = held(UP, GATE)
    assert [one.tensor.name for one in parameter.pieces] == ["gate", "up"]
    assert [one.rows for one in parameter.pieces] == [range(2, 4), range(4, 8)]
    assert (parameter.module, parameter.kind, parameter.rows, parameter.experts) == ("m.gate_up", "linear", 6, 1)
    assert parameter.row_bytes == 256
    assert parameter.quant_types == (0, 8)
    assert parameter.quantised_name == "m.gate_up.qweight"


def test_tensors_that_do_not_exist_are_left_out_and_the_order_of_specs_is_kept():
    norm = spec("norm", Split.REPLICATED, (64,), hf="norm.weight")
    head = spec("head", Split.VOCAB, (10, 64), hf="lm_head.weight")
    table = {"up": TABLE["up"], "norm": info("norm", (64,)), "head": info("head", (10, 64))}
    found = held(norm, GATE, head, UP, table=table)
    assert [(one.module, one.kind) for one in found] == [
        ("norm", "vector"),
        ("lm_head", "linear"),
        ("m.gate_up", "linear"),
    ]
    assert [len(one.pieces) for one in found] == [1, 1, 1]
    assert found[1].rows == 32  # 64 padded rows for two ranks


def test_experts_and_heads_are_kinds_of_their_own():
    gate = spec("gate", Split.EXPERT_ROWS, (4, 6, 64), merged="model.layers.{layer}.mlp.experts.w13")
    keys = spec("keys", Split.HEADS, (6, 8, 64), merged="kv_b")
    table = {"gate": info("gate", (4, 6, 64)), "keys": info("keys", (6, 8, 64))}
    experts, heads = held(gate, keys, table=table)
    assert (experts.kind, experts.experts, experts.rows) == ("experts", 4, 3)
    assert experts.quantised_name == "model.layers.3.mlp.experts.routed_experts.w13_qweight"
    assert (heads.kind, heads.experts) == ("heads", 1)
    down = held(spec("gate", Split.EXPERT_COLUMNS, (4, 6, 64)), table=table)[0]
    assert isinstance(down, Parameter)
    assert (down.kind, down.row_bytes) == ("experts", 128)
