"""A sweep: the same model under a list of environments and vLLM flags, right ones ranked by speed.

Each candidate is first asked whether it is right; a wrong one is not measured. Then candidates take turns, block by
block, each block on a server of its own, so that neither a drift of the machine nor one lucky start decides. Every step
is written to a journal before the next begins: a sweep that crashed goes on where it was. A small model's servers can
all run at once (`resident`) and take turns round by round.

    rounds = 6                # rounds of single-stream decode a block
    blocks = 3                # servers a candidate is started on
    resident = false          # true: the servers of a block run at once, where memory holds them all
    serve_args = []           # for every candidate

    [[candidate]]
    name = "LL"
    environment = { NCCL_PROTO = "LL" }
    serve_args = ["--disable-custom-all-reduce"]
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Final, Protocol

import msgspec

from glm5check.errors import OptionError, ServerError
from glm5check.redaction import REDACTED, Redactor, is_secret_name, redact_command, secrets_in
from glm5check.statistics import Interval, median_interval

JOURNAL: Final = "sweep.jsonl"
CONFIDENCE: Final = 0.95
"""Of the intervals in the ranking, which informs and decides nothing."""
MAX_PLAN_BYTES: Final = 1 << 20


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One setting to try."""

    name: str
    environment: dict[str, str] = {}
    serve_args: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to try and how long. The first candidate is the one that the others must agree with."""

    candidate: tuple[Candidate, ...]
    rounds: int = 6
    blocks: int = 3
    resident: bool = False
    """All candidates' servers of a block start at once and take turns round by round."""
    serve_args: tuple[str, ...] = ()
    """For every candidate, before its own."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the journal: one block of one candidate. `wrong` says why it is out of the race."""

    plan: str
    candidate: str
    block: int
    samples: tuple[float, ...] = ()
    wrong: str = ""


class Trial(Protocol):
    """A server that runs under one candidate's settings."""

    def objection(self) -> str:
        """Why its answers are wrong; empty if they are right."""

    def sample(self) -> float:
        """tok/s of one round."""


Start = Callable[[Candidate], AbstractContextManager[Trial]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A candidate's place: samples of all blocks and the interval of their median, or why it has none."""

    candidate: Candidate
    samples: tuple[float, ...]
    interval: Interval | None
    wrong: str


def read_plan(path: Path) -> Plan:
    """Raises OptionError for a file that cannot be read, an unknown key, no or doubled candidates, empty counts."""
    try:
        if path.stat().st_size > MAX_PLAN_BYTES:
            raise OptionError("the plan is too long", where=str(path), do="a candidate takes a few lines")
        plan = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Plan)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise OptionError(
            f"the plan cannot be read: {error}", where=str(path), do="see `glm5check sweep --help`"
        ) from None
    names = [candidate.name for candidate in plan.candidate]
    if not names or len(set(names)) < len(names) or plan.rounds < 1 or plan.blocks < 1:
        raise OptionError(
            "a plan needs candidates with different names, and one round and block or more",
            where=str(path),
            do=f"it has {', '.join(names) or 'no candidate'}, {plan.rounds} rounds, {plan.blocks} blocks",
        )
    return plan


def digest(plan: Plan, subject: str) -> str:
    """Identifies a plan on a subject (model and ranks), so that no journal of another one is continued."""
    return hashlib.sha256(msgspec.json.encode(plan) + subject.encode()).hexdigest()[:16]


def run(plan: Plan, start: Start, journal: Path, *, identity: str, say: Callable[[str], None]) -> list[Rank]:
    """Do what the journal does not hold yet, and rank. Raises OptionError where the journal is of another plan.

    A candidate whose server does not start, or dies, is out with the first error as the reason.
    """
    done = read_journal(journal, identity)
    for block in range(plan.blocks):
        missing = [one for one in plan.candidate if not any(_covers(entry, one, block) for entry in done)]
        for group in _groups(missing, resident=plan.resident):
            say(f"block {block + 1} of {plan.blocks}: {', '.join(candidate.name for candidate in group)}")
            for entry in _block(plan, group, block, start, identity):
                with journal.open("ab") as stream:
                    stream.write(msgspec.json.encode(entry) + b"\n")
                done.append(entry)
                values = ", ".join(f"{value:.4g}" for value in entry.samples)
                say(f"  {entry.candidate}: {entry.wrong or values + ' tok/s'}")
    return ranking(plan, done)


def _groups(candidates: list[Candidate], *, resident: bool) -> list[list[Candidate]]:
    """Candidates whose servers run at once."""
    if resident and candidates:
        return [candidates]
    return [[candidate] for candidate in candidates]


def _covers(entry: Entry, candidate: Candidate, block: int) -> bool:
    return entry.candidate == candidate.name and (entry.block == block or bool(entry.wrong))


def _block(plan: Plan, group: Sequence[Candidate], block: int, start: Start, identity: str) -> list[Entry]:
    """One entry a candidate. Who is wrong or fails is out; the others go on."""
    samples: dict[str, list[float]] = {candidate.name: [] for candidate in group}
    wrong: dict[str, str] = {}
    with ExitStack() as running:
        trials = _started([start(candidate) for candidate in group], running)
        for turn in range(plan.rounds + 1):
            for candidate, trial in zip(group, trials, strict=True):
                name = candidate.name
                if name in wrong:
                    continue
                try:
                    if isinstance(trial, ServerError):
                        raise trial
                    if turn:
                        samples[name].append(trial.sample())
                    elif objection := trial.objection():
                        wrong[name] = objection
                except ServerError as error:
                    wrong[name] = f"the server failed: {error.what.splitlines()[0]}"
    return [
        Entry(
            plan=identity,
            candidate=candidate.name,
            block=block,
            samples=tuple(samples[candidate.name]),
            wrong=_redactor(candidate).clean(wrong.get(candidate.name, "")),
        )
        for candidate in group
    ]


def _started(servers: Sequence[AbstractContextManager[Trial]], running: ExitStack) -> list[Trial | ServerError]:
    """Start all at once; `running` ends them. A server that does not start gives its error."""
    found: list[Trial | ServerError] = [ServerError("its start ended with the error above")] * len(servers)

    def enter(number: int) -> None:
        try:
            found[number] = running.enter_context(servers[number])
        except ServerError as error:
            found[number] = error

    if len(servers) == 1:
        enter(0)
        return found
    # Daemons, so that Ctrl-C does not wait for a server that is half an hour from its first token.
    threads = [Thread(target=enter, args=(number,), daemon=True) for number in range(len(servers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def read_journal(path: Path, identity: str) -> list[Entry]:
    """Whole lines of a journal; a last line that a crash cut short is dropped from the file."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    path.write_bytes(whole + b"\n" if whole else b"")
    try:
        entries = [msgspec.json.decode(line, type=Entry) for line in whole.splitlines()]
    except msgspec.DecodeError as error:
        raise OptionError(f"the journal cannot be read: {error}", where=str(path), do="give another --out") from None
    if any(entry.plan != identity for entry in entries):
        raise OptionError("the journal is of another plan or model", where=str(path), do="give another --out")
    return entries


def ranking(plan: Plan, entries: Sequence[Entry]) -> list[Rank]:
    """Fastest median first, wrong candidates last in the order of the plan."""
    ranks = [
        _rank(candidate, [entry for entry in entries if entry.candidate == candidate.name])
        for candidate in plan.candidate
    ]
    return sorted(ranks, key=lambda rank: -rank.interval.centre if rank.interval else 0.0)


def _rank(candidate: Candidate, entries: Sequence[Entry]) -> Rank:
    wrong = next((entry.wrong for entry in entries if entry.wrong), "")
    samples = tuple(value for entry in entries for value in entry.samples)
    interval = median_interval(samples, CONFIDENCE) if samples and not wrong else None
    return Rank(candidate=candidate, samples=samples, interval=interval, wrong=wrong)


def ties(ranks: Sequence[Rank]) -> Iterator[tuple[str, str]]:
    """Neighbours in the ranking whose intervals overlap: their order may be chance."""
    right = [rank for rank in ranks if rank.interval]
    for faster, slower in pairwise(right):
        assert faster.interval is not None
        assert slower.interval is not None
        if slower.interval.high >= faster.interval.low:
            yield faster.candidate.name, slower.candidate.name


def settings_text(candidate: Candidate) -> str:
    """Environment and flags in the way that one would type them, without secrets."""
    environment = [
        f"{key}={REDACTED if is_secret_name(key) else value}" for key, value in candidate.environment.items()
    ]
    words = [*environment, *redact_command(candidate.serve_args)]
    return _redactor(candidate).clean(" ".join(words)) or "(defaults)"


def _redactor(candidate: Candidate) -> Redactor:
    return Redactor({**os.environ, **candidate.environment}, secrets_in(candidate.serve_args))
