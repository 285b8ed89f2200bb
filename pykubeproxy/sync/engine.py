"""The engine: brings the kernel's rules of one IP family to what the cluster's objects mean.

Model. The engine holds what is *wanted* (Desired, a pure value kept up to date service by service) and what is
*standing* (a Ruleset, or None: unknown). Sources and configuration only mark things dirty. ``sync`` is the only
method that touches the kernel: render the dirty services, read what stands if that is unknown, compare the chains in
question, apply the plan.

Goals, and how each is met:
1. *Nothing is lost.* Dirty marks are drained into ``wanted``, which stays; chains that may differ from the kernel are
   forgotten only when a restore that wrote them has succeeded.
2. *Nothing is written before both lists are in*, and nothing that stands already is written again: the first sync
   adopts.
3. *After any failure the kernel's state is unknown*, since an input is atomic a table at a time only: ``standing``
   becomes None and the next round reads. A busy lock is not such a failure: nothing was done.
4. *One bad service never stops the others*: a refused input is bisected by service within the same sync; the culprit
   becomes nothing (quarantine) until its objects change, or a pause that doubles is over: the refusal may have been
   the moment's.
5. *A crash between any two steps leaves every service working*: the order is the plan's (sync.plan).
6. *Work per change*: only touched chains are compared, and no save runs unless the state is unknown or a verification
   is due.
7. *No war over spelling*: a rule that the kernel prints otherwise than it was written is remembered as equal, logged
   once.

Threads: ``sync`` is called by one thread (sync.runner). ``configure`` may be called by any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from pykubeproxy import progress
from pykubeproxy.errors import KilledError, LockBusyError, NetfilterError, PykubeproxyError, RestoreError
from pykubeproxy.model.service import ServiceKey
from pykubeproxy.model.state import ClusterState
from pykubeproxy.netfilter.backend import Backend
from pykubeproxy.netfilter.process import Runner
from pykubeproxy.netfilter.read import Reader, Reading
from pykubeproxy.netfilter.restore import around, restore
from pykubeproxy.netfilter.suspects import EVERYTHING, NOTHING, Look, suspects
from pykubeproxy.rules.dispatch import leads_to_tree
from pykubeproxy.rules.names import NAT, TABLES
from pykubeproxy.rules.ruleset import Ensured, Ruleset
from pykubeproxy.rules.settings import RuleSettings
from pykubeproxy.serving.metrics import Metrics
from pykubeproxy.sync import drift
from pykubeproxy.sync.desired import Chain, Desired
from pykubeproxy.sync.diff import difference
from pykubeproxy.sync.drift import Damper
from pykubeproxy.sync.isolation import MANY_CULPRITS, CommonCauseError, Search, undeletable
from pykubeproxy.sync.keeping import Kept, standing_services
from pykubeproxy.sync.patience import Patience
from pykubeproxy.sync.plan import Plan, Section, Step, make_plan
from pykubeproxy.sync.spelling import Spelling
from pykubeproxy.sync.telling import Outcome, Reporter, Telling

log = structlog.get_logger()

NFT_BATCH = 4000
"""Most lines of one input on nft: iptables-nft-restore takes time quadratic in the lines of a commit, and the kernel a
fixed time for each commit."""
ROUNDS = 6
"""How often one sync starts over (unknown state read again, culprits left out) before it gives up until the retry."""
DEEP = 1800.0
"""Seconds after which everything is read although nobody seems to have written: whatever was missed is found then."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds until what was refused (a service, the deletion of a chain) is tried again, doubled each time."""


class Engine:
    """See the module's docstring."""

    def __init__(
        self,
        state: ClusterState,
        backend: Backend,
        runner: Runner,
        settings: RuleSettings,
        *,
        metrics: Metrics,
        dispatch: str = "auto",
        reporter: Reporter | None = None,
        look: Look = lambda: EVERYTHING,
        damper: Damper | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        batch: int | None = NFT_BATCH,
        on_adopt: Callable[[Ruleset], None] = lambda _: None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        """Make an engine that has not looked at the kernel yet.

        ``look`` tells what others may have changed in the kernel's tables since it was last asked. ``batch`` is used
        on nft only. ``on_adopt`` is shown what stood before the first write. ``on_refused`` is called (seldom) when the
        kernel refuses something, before any service is blamed: it may look what the kernel can do, and ``configure``.
        """
        self.state = state
        self.family = state.family
        self.reader = Reader(backend, runner)
        self._backend = backend
        self._runner = runner
        self._metrics = metrics
        self._look = look
        self.damper = damper or Damper()
        """Decides how often a drifted chain is put back."""
        self._clock = clock
        self._batch = batch if backend.kind == "nft" else None
        self._on_adopt = on_adopt
        self._on_refused = on_refused
        self._probe_at = float("-inf")
        self._lock = threading.Lock()
        self._settings = settings
        self._dispatch = dispatch
        self._wanted: Desired | None = None
        self._standing: Ruleset | None = None
        self._read_at = 0.0
        """When everything was last read."""
        self._suspected = NOTHING
        """What others may have changed and has not been read since."""
        self._check_ensured = False
        """Whether the rules in chains that are not ours may differ."""
        self._drifted: dict[str, int] = {}
        """Places found drifted and not yet healed, by table."""
        self._touched: set[Chain] = set()
        self._triggers: list[float] = []
        self._rendered: dict[ServiceKey, None] = {}
        """Services rendered and not yet told of in an Outcome."""
        self._quarantine: dict[ServiceKey, str] = {}
        self._kept: Kept = {}
        """What stood of all services before the first write, while not all objects could be read."""
        self._spelling = Spelling(self.family, metrics)
        self._undeletable: Patience[Chain] = Patience(FIRST_PAUSE, LONGEST_PAUSE)
        self._refusals: Patience[ServiceKey] = Patience(FIRST_PAUSE, LONGEST_PAUSE)
        self._unreadable: set[str] = set()
        self._telling = Telling(self.family, metrics, reporter, wall_clock)
        self.has_synced = False
        """Whether the kernel has once held the wanted rules."""

    def configure(self, settings: RuleSettings, *, dispatch: str) -> bool:
        """Exchange the settings; tell whether that changes anything. The next sync renders all services anew."""
        with self._lock:
            if settings == self._settings and dispatch == self._dispatch:
                return False
            self._settings, self._dispatch = settings, dispatch
            self._wanted = None
            return True

    @property
    def settings(self) -> RuleSettings:
        """The settings in force."""
        with self._lock:
            return self._settings

    @property
    def wanted(self) -> Desired | None:
        """What is wanted now (None before the first sync). Read it under the state's lock only."""
        return self._wanted

    @property
    def quarantined(self) -> dict[ServiceKey, str]:
        """The services that are left out, and why each."""
        wanted = self._wanted
        lacking = {} if wanted is None else dict(wanted.left_out)
        return {key: f"the kernel lacks the match {match}" for key, match in lacking.items()} | self._quarantine

    @property
    def fight(self) -> str:
        """What another program changes again each time it is put back, in words; "" where there is no such program."""
        places = self.damper.contested(self._clock())
        if not places:
            return ""
        tables = " and ".join(sorted({place.table for place in places}))
        several = "1 chain or jump" if len(places) == 1 else f"{len(places):,} chains and jumps"
        return f"{self.family}: another program changes {several} in {tables} again each time they are put back"

    def sync(self, reason: str = "", *, verify: bool = False) -> Outcome | None:
        """Bring the kernel to what is wanted; return what was done, or None before both lists are in.

        With ``verify`` those parts of the standing rules are read again that somebody else may have changed.

        Raises:
            LockBusyError: the lock was held throughout; nothing was done.
            NetfilterError, EnvironmentProblem: not everything could be applied; call again later.

        """
        if not self.state.has_synced:
            return None
        started = self._clock()
        outcome = Outcome(reason)
        try:
            while True:
                wanted, is_full = self._render()
                outcome.is_full = outcome.is_full or is_full
                self._converge(wanted, outcome, verify=verify)
                if not self._is_outdated(wanted):
                    break
        except LockBusyError:
            self._metrics.lock_waits_total.labels(ip_family=self.family).inc()
            raise
        finally:
            outcome.seconds = self._clock() - started
            self._telling.left_out(self.quarantined)
        self._done(wanted, outcome)
        return outcome

    # -- rendering

    def _render(self) -> tuple[Desired, bool]:
        """Render what is dirty; return what is wanted and whether everything was rendered."""
        with self.state.lock:  # around both, so that nobody who reads ``wanted`` under it finds a new one still empty
            with self._lock:
                settings, dispatch, wanted = self._settings, self._dispatch, self._wanted
                if wanted is None:
                    stood = self._standing
                    is_tree = stood is not None and leads_to_tree(stood.chains[NAT])
                    wanted = self._wanted = Desired(settings, dispatch=dispatch, stands_as_tree=bool(is_tree))
                    is_new = True
                else:
                    is_new = False
            dirty = self.state.take_dirty()
            self._triggers += self.state.take_triggers(dirty)
            for key in dirty:
                self._refusals.forget(key)
            again = [key for key in self._refusals.due(self._clock()) if key in self._quarantine]
            dirty += again
            for key in dirty:
                if self._quarantine.pop(key, None) is not None:
                    log.info("service retried", family=self.family, service=str(key))
            if self._kept and not self.state.is_partial:
                dirty += [key for key in self._kept if key not in dirty]
                self._kept = {}
            keys: Iterable[ServiceKey] = self.state.keys() if is_new else dirty
            wanted.update(self.state, keys, without=frozenset(self._quarantine), kept=self._kept)
        self._rendered.update(dict.fromkeys(keys))
        changed = wanted.take_changed()
        if is_new:
            self._touched.clear()
            if self._standing is not None:
                self._touched.update(
                    (table, chain)
                    for table in TABLES
                    for chain in {**self._standing.chains[table], **wanted.ruleset.chains[table]}
                )
        else:
            self._touched.update(changed)
        return wanted, is_new

    # -- converging

    def _converge(self, wanted: Desired, outcome: Outcome, *, verify: bool) -> None:
        self._check_ensured = self._check_ensured or outcome.is_full
        self._touched.update(self._undeletable.due(self._clock()))
        left = ROUNDS
        while left > 0:
            left -= 1
            blamed = len(outcome.refused)
            if self._standing is not None and verify:
                verify = False
                self._find_drift(wanted, outcome)
            standing = self._standing
            adopted = standing is None
            if standing is None:
                standing = self._read(wanted)
                if not self.has_synced:
                    self._on_adopt(standing)
                    self._keep_unknown(standing, wanted)
                outcome.is_full = self._check_ensured = True
                # Marked, not only compared: a busy lock must not let it be forgotten.
                self._touched.update(
                    (table, chain)
                    for table in TABLES
                    for chain in {**standing.chains[table], **wanted.ruleset.chains[table]}
                )
            found = difference(standing, wanted.ruleset, self._touched, ensured=self._check_ensured)
            found = replace(found, ensure=tuple(rule for rule in found.ensure if not self.damper.holds(rule)))
            plan = make_plan(found, wanted.owner.get, batch=self._batch)
            if not plan:
                break
            if self._apply(plan, standing, wanted, outcome, is_fresh=adopted):
                if adopted or self._check_ensured or self._drifted:
                    self._read_back(found.write, found.ensure)
                break
            if self._is_outdated(wanted):
                return
            left += len(outcome.refused) - blamed
        else:
            raise NetfilterError(f"the rules did not settle in {ROUNDS} rounds; trying again later")
        self._touched.clear()
        self._check_ensured = False

    def _keep_unknown(self, standing: Ruleset, wanted: Desired) -> None:
        """Where not all objects could be read, leave alone what stands of the services that may be among the others."""
        with self.state.lock:
            if not self.state.is_partial:
                return
            self._kept = standing_services(standing)
            wanted.update(self.state, (), kept=self._kept)
            names = sorted(str(key) for key in self._kept if self.state.is_unknown(key))
        if names:
            log.warning(
                "services kept", family=self.family, services=len(names), some=names[:5],
                why="not all objects have been read yet, so what stands of these is left alone",
            )  # fmt: skip

    def _read(self, wanted: Desired) -> Ruleset:
        """Read all that stands."""
        self._suspected |= self._look()  # what came before this reading is no news afterwards
        reading = self.reader.read()
        is_tree = leads_to_tree(reading.ruleset.chains[NAT])
        if is_tree is not None:
            with self.state.lock:
                wanted.take_form(stands_as_tree=is_tree)
        standing = self._recognised(reading, wanted, TABLES)
        self._suspected, self._read_at = NOTHING, self._clock()
        self._standing = standing
        return standing

    def _recognised(self, reading: Reading, wanted: Desired, tables: Iterable[str]) -> Ruleset:
        """Return what was read, respecting what is remembered as equal. ``tables`` were read as a whole."""
        for table, why in reading.unreadable.items():
            if table not in self._unreadable:
                self._unreadable.add(table)
                log.warning(
                    "table unreadable", family=self.family, table=table, why=why, consequence="read chain by chain"
                )
        self._unreadable.difference_update(table for table in tables if table not in reading.unreadable)
        self._spelling.recognise(reading.ruleset, wanted.ruleset)
        return reading.ruleset

    def _find_drift(self, wanted: Desired, outcome: Outcome) -> None:
        """Read again what others may have changed, and all of it once in a while; mark what is to be put back."""
        started = self._clock()
        self._suspected |= self._look()
        suspected, old = self._suspected, self._standing
        assert old is not None
        is_deep = started >= self._read_at + DEEP
        if suspected or is_deep:
            reading, read = self.reader.reread(EVERYTHING if is_deep else suspected)
            fresh = self._recognised(reading, wanted, read.tables)
            self._suspected = NOTHING
            if is_deep:
                self._read_at = started
            self._standing = now = drift.merged(old, fresh, read, suspected)
            drifted = drift.moved(old, now, wanted.ruleset, read) + drift.missing(now, wanted.ruleset, read)
            self.damper.drop(p for p in self.damper.held if drift.is_as_wanted(p, now, wanted.ruleset))
            heal, contested = self.damper.judge(
                drifted, started, lost=lambda place: drift.is_lost(place, now, wanted.ruleset)
            )
            self._telling.drift(heal, contested)
            self._check_ensured |= len(fresh.ensured) != sum(read.covers(r.table, r.chain) for r in old.ensured)
        else:
            heal = []
        heal += self.damper.release(started)
        self._touched.update((place.table, place.chain) for place in heal if not place.rule)
        self._check_ensured |= any(place.rule for place in heal)
        for place in heal:
            self._drifted[place.table] = self._drifted.get(place.table, 0) + 1
            self._metrics.drift_detected_total.labels(table=place.table, ip_family=self.family).inc()
        outcome.verify_seconds = self._clock() - started

    def _apply(self, plan: Plan, standing: Ruleset, wanted: Desired, outcome: Outcome, *, is_fresh: bool) -> bool:
        """Apply a plan; return False when the state is unknown afterwards and another round must read it.

        Unless the standing rules were read just now (``is_fresh``), a refusal may be due to what others have done since
        (a chain deleted that a rule refers to): then no service is blamed before they have been read.
        """
        for step in progress.over(plan.steps, f"writing the {self.family} rules", weigh=Step.size):
            try:
                self._restore(step, outcome)
                applied = step
            except RestoreError as refused:
                self._standing = None
                applied = step.without_deletes()
                if step.deletes and self._tolerates(applied, outcome):
                    _note(standing, applied)
                    # The tables in front of the refused one were committed the first time too: their jumps stand twice.
                    self._suspected |= suspects((), ((r.table, r.chain) for s in step.sections for r in s.ensured))
                    for section in step.sections:
                        self._delete(section.table, section.delete, standing, outcome)
                    self._standing = standing
                    continue
                if is_fresh:
                    self._isolate(applied, standing, wanted, refused, outcome)
                return False
            except LockBusyError:
                raise
            except KilledError:
                self._standing = None
                return False
            except PykubeproxyError:
                self._standing = None
                raise
            _note(standing, applied)
        return True

    def _restore(self, step: Step, outcome: Outcome, *, level: str = "error") -> None:
        document = step.text()
        started = self._clock()
        try:
            restore(self._backend, self._runner, document)
        except LockBusyError:
            raise
        except NetfilterError as exc:
            self._metrics.restores_total.labels(ip_family=self.family, result="failure").inc()
            self._metrics.sync_proxy_rules_iptables_restore_failures_total.labels(ip_family=self.family).inc()
            if not outcome.is_full:
                self._metrics.sync_proxy_rules_iptables_partial_restore_failures_total.labels(
                    ip_family=self.family
                ).inc()
            line = exc.line if isinstance(exc, RestoreError) else None
            say = log.error if level == "error" else log.debug
            say("restore failed", family=self.family, stage=step.stage, error=str(exc), input=around(document, line))
            raise
        self._metrics.restores_total.labels(ip_family=self.family, result="success").inc()
        self._metrics.restore_duration_seconds.labels(ip_family=self.family).observe(self._clock() - started)
        self._metrics.restore_bytes_total.labels(ip_family=self.family).inc(len(document))
        outcome.count(step, len(document))

    def _tolerates(self, step: Step, outcome: Outcome) -> bool:
        """Try a step without its deletions; tell whether that was what stood in the way."""
        try:
            self._restore(step, outcome)
        except RestoreError:
            return False
        return True

    def _delete(self, table: str, chains: tuple[str, ...], standing: Ruleset, outcome: Outcome) -> None:
        """Delete chains that have been emptied, by halves, so that those are found that cannot be deleted."""

        def delete(part: tuple[str, ...]) -> None:
            step = Step("sweep", (Section(table, delete=part),))
            self._restore(step, outcome)
            _note(standing, step)

        for chain, _ in undeletable(chains, delete):
            is_new = (table, chain) not in self._undeletable
            self._undeletable.refused((table, chain), self._clock())
            if is_new:
                log.warning(
                    "chain not deleted", family=self.family, table=table, chain=chain,
                    why="a rule that is not ours refers to it; emptied, tried again later",
                )  # fmt: skip

    def _isolate(self, step: Step, standing: Ruleset, wanted: Desired, refused: RestoreError, outcome: Outcome) -> None:
        """Find the services whose rules the kernel refuses and leave them out.

        Raises:
            RestoreError: the step was refused before as well, and no service can be blamed.
            CommonCauseError: too much is refused. What LockBusyError, EnvironmentProblem mean, see restore.

        """
        now = self._clock()
        if now >= self._probe_at:
            self._probe_at = now + FIRST_PAUSE
            self._on_refused()
            if self._is_outdated(wanted):
                return
        most = MANY_CULPRITS - len(outcome.refused)
        search = Search(standing, wanted, lambda trial: self._restore(trial, outcome, level="debug"), self._batch, most)
        try:
            culprits = search.run(step)
        except CommonCauseError:
            self._take_back(list(outcome.refused), wanted)
            raise
        if not culprits:
            outcome.unexplained += 1
            if outcome.unexplained > 1:
                raise refused
            return
        outcome.refused.update(culprits)
        for key, why in culprits.items():
            self._quarantine[key] = why
            self._refusals.refused(key, now)
        with self.state.lock:
            wanted.update(self.state, list(culprits), without=frozenset(self._quarantine))
        self._touched.update(wanted.take_changed())

    def _take_back(self, keys: list[ServiceKey], wanted: Desired) -> None:
        """Blame these services no more."""
        for key in keys:
            self._quarantine.pop(key, None)
            self._refusals.forget(key)
        with self.state.lock:
            wanted.update(self.state, keys, without=frozenset(self._quarantine))
        self._touched.update(wanted.take_changed())

    def _is_outdated(self, wanted: Desired) -> bool:
        with self._lock:
            return self._wanted is not wanted

    def _read_back(
        self,
        written: dict[str, dict[str, tuple[str | None, str]]],
        inserted: tuple[Ensured, ...],
    ) -> None:
        """Look whether the kernel prints what was written over a differing chain as it was written."""
        rewritten = [
            (table, chain, want)
            for table, chains in written.items()
            for chain, (have, want) in chains.items()
            if have is not None
        ]
        if not rewritten and not inserted:
            return
        places = [(table, chain) for table, chain, _ in rewritten] + [(rule.table, rule.chain) for rule in inserted]
        fresh = self.reader.reread(suspects((), places))[0].ruleset
        # What another program has changed meanwhile says nothing about how the kernel prints our rules.
        self._suspected |= self._look()
        self._spelling.learn(
            fresh,
            [place for place in rewritten if not self._suspected.covers(*place[:2])],
            [rule for rule in inserted if not self._suspected.covers(rule.table, rule.chain)],
        )

    # -- afterwards

    def _done(self, wanted: Desired, outcome: Outcome) -> None:
        self.has_synced = True
        for key in self._refusals:
            if key not in self._quarantine:
                self._refusals.forget(key)
        standing = self._standing
        for table, chain in self._undeletable:
            if standing is None or chain not in standing.chains[table]:
                self._undeletable.forget((table, chain))
        outcome.triggers, self._triggers = self._triggers, []
        outcome.rendered, self._rendered = list(self._rendered), {}
        outcome.drifted, self._drifted = self._drifted, {}
        if outcome.drifted:
            self.damper.heal_seconds = outcome.seconds
        due = self.damper.due()
        outcome.verify_in = 0.0 if self._suspected else None if due is None else max(0.0, due - self._clock())
        self._telling.problems(wanted)
        self._telling.synced(wanted, outcome)


def _note(standing: Ruleset, step: Step) -> None:
    """Carry an applied step over into what stands."""
    for section in step.sections:
        chains = standing.chains[section.table]
        for chain, text in section.chains:
            chains[chain] = text
        for chain in section.delete:
            chains.pop(chain, None)
        if section.create:
            standing.shared_chains += tuple((section.table, chain) for chain in section.create)
        standing.ensured += section.ensured
        for rule in section.removed:
            kept = list(standing.ensured)
            kept.remove(next(r for r in kept if (r.table, r.chain, r.rule) == (rule.table, rule.chain, rule.rule)))
            standing.ensured = tuple(kept)
