"""Sweeps: candidates take turns, wrong ones are out, a crash loses nothing, the ranking is right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glm5check.errors import OptionError, ServerError
from glm5check.reports import sweep_report
from glm5check.roofline import Bound
from glm5check.serving.sweep import JOURNAL, Candidate, Plan, Trial, digest, read_plan, run, ties

PLAN = Plan(
    candidate=(
        Candidate(name="eager", serve_args=("--enforce-eager",)),
        Candidate(name="LL", environment={"NCCL_PROTO": "LL"}),
        Candidate(name="garbage"),
        Candidate(name="broken"),
    ),
    rounds=8,
    blocks=2,
)
PACE = {"eager": 20.0, "LL": 57.0, "garbage": 900.0}


class Machine:
    """Starts pretended servers; `crash_at` raises in place of the start of that number."""

    def __init__(self, crash_at: int = -1) -> None:
        self.started: list[str] = []
        self.crash_at = crash_at

    @contextmanager
    def start(self, candidate: Candidate) -> Iterator[Trial]:
        if len(self.started) == self.crash_at:
            raise KeyboardInterrupt
        self.started.append(candidate.name)
        if candidate.name == "broken":
            raise ServerError("vLLM ended with status 1\n  last lines of its log: ...")
        yield Pretended(candidate.name)


class Pretended:
    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    def objection(self) -> str:
        return "decode.mean_kl: got 3.1 nat, but should be at most 0.01 nat" if self.name == "garbage" else ""

    def sample(self) -> float:
        self.count += 1
        return PACE[self.name] + self.count / 10


def sweep(machine: Machine, directory: Path, plan: Plan = PLAN) -> list[str]:
    identity = digest(plan, "tiny on 2 ranks")
    ranks = run(plan, machine.start, directory / JOURNAL, identity=identity, say=lambda line: None)
    sweep_report.write(ranks, directory, "tiny on 2 ranks")
    return [rank.candidate.name for rank in ranks]


def test_right_candidates_are_ranked_and_wrong_ones_are_out_however_fast(tmp_path: Path) -> None:
    machine = Machine()
    assert sweep(machine, tmp_path) == ["LL", "eager", "garbage", "broken"]
    assert machine.started == ["eager", "LL", "garbage", "broken", "eager", "LL"]
    table = (tmp_path / sweep_report.TABLE).read_text()
    assert "| 1 | LL | 57.45 | 57.2 to 57.7 | 16 | NCCL\\_PROTO=LL |" in table or "| 1 | LL | 57.45 |" in table
    assert "out: decode.mean" in table
    assert "out: the server failed: vLLM ended with status 1" in table
    assert (tmp_path / sweep_report.PLOT).stat().st_size > 1000


def test_the_share_of_the_bound_is_in_the_table(tmp_path: Path) -> None:
    plan = Plan(candidate=PLAN.candidate[:3], rounds=8, blocks=1)
    ranks = run(plan, Machine().start, tmp_path / JOURNAL, identity="x", say=lambda line: None)
    table = sweep_report.render(
        ranks, "tiny on 2 ranks", Bound(parts={"experts": 0.006, "all-reduces": 0.004}, batch=1)
    )
    assert "at most 100 tok/s (experts 6 ms, all-reduces 4 ms)" in table
    assert "| 57.45 | 57.1 to 57.8 | 57.5% | 8 |" in table
    assert "| - | 0 |" in table


def test_after_a_crash_it_goes_on_where_it_was(tmp_path: Path) -> None:
    crashed = Machine(crash_at=4)
    with pytest.raises(KeyboardInterrupt):
        sweep(crashed, tmp_path)
    with (tmp_path / JOURNAL).open("ab") as journal:
        journal.write(b'{"plan":"half a li')
    again = Machine()
    assert sweep(again, tmp_path)[:2] == ["LL", "eager"]
    assert again.started == ["eager", "LL"]
    assert sweep(Machine(crash_at=0), tmp_path)[:2] == ["LL", "eager"]


def test_the_journal_of_another_plan_is_not_continued(tmp_path: Path) -> None:
    sweep(Machine(), tmp_path)
    other = Plan(candidate=PLAN.candidate, rounds=9, blocks=2)
    with pytest.raises(OptionError, match="the journal is of another plan or model"):
        sweep(Machine(), tmp_path, other)


def test_overlapping_intervals_are_called_chance(tmp_path: Path) -> None:
    plan = Plan(candidate=(Candidate(name="eager"), Candidate(name="LL")), rounds=8, blocks=1)
    ranks = run(plan, Machine().start, tmp_path / JOURNAL, identity="x", say=lambda line: None)
    assert list(ties(ranks)) == []
    assert list(ties([ranks[0], ranks[0]])) == [("LL", "LL")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the plan cannot be read: Object missing required field `candidate`"),
        ("candidate = []", "candidates with different names"),
        ('[[candidate]]\nname = "a"\n[[candidate]]\nname = "a"', "candidates with different names"),
        ('rounds = 0\n[[candidate]]\nname = "a"', "one round and block or more"),
        ('[[candidate]]\nname = "a"\nenv = {}', "unknown field `env`"),
        ("[[candidate", "the plan cannot be read"),
    ],
)
def test_a_plan_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(OptionError, match=message):
        read_plan(path)


def test_servers_of_a_small_model_run_at_once_and_take_turns(tmp_path: Path) -> None:
    """One pass through all candidates a round, so that a drift of the machine meets all of them alike."""
    turns: list[str] = []

    class Watched(Pretended):
        def sample(self) -> float:
            turns.append(self.name)
            return super().sample()

    class Resident(Machine):
        running = most = 0

        @contextmanager
        def start(self, candidate: Candidate) -> Iterator[Trial]:
            with super().start(candidate):
                self.running += 1
                self.most = max(self.most, self.running)
                yield Watched(candidate.name)
                self.running -= 1

    machine = Resident()
    plan = Plan(candidate=PLAN.candidate, rounds=3, blocks=1, resident=True)
    assert sweep(machine, tmp_path, plan) == ["LL", "eager", "garbage", "broken"]
    assert machine.most == 3
    assert machine.running == 0
    assert turns == ["eager", "LL"] * 3


@pytest.mark.parametrize("name", ["one", "several"])
def test_the_plans_for_gpus_can_be_read(name: str) -> None:
    plan = read_plan(Path(__file__).parents[3] / ".ci" / "sweep" / f"{name}.toml")
    assert plan.resident
    assert len(plan.candidate) >= 3
