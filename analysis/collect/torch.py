"""watch: record what the tensors of a PyTorch training run are, and where it first breaks."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from fpemu.analysis.collect import modes, scalers
from fpemu.analysis.collect.arrays import check_tensor
from fpemu.analysis.collect.causes import Causes
from fpemu.analysis.collect.framework import torch
from fpemu.analysis.collect.labels import Labels
from fpemu.analysis.collect.names import Names, is_replicated, models_of
from fpemu.analysis.collect.places import find_place
from fpemu.analysis.collect.ranks import own_path, rank_and_world
from fpemu.analysis.collect.recording import Recording
from fpemu.analysis.collect.settings import Settings, read_settings
from fpemu.analysis.collect.stepping import Stepping
from fpemu.analysis.first_cause import FirstCause
from fpemu.analysis.metadata import READ_BY_PRODUCTS
from fpemu.analysis.skipped import SKIP
from fpemu.analysis.store import PathLike
from fpemu.analysis.trace import Trace
from fpemu.cast import Cast
from fpemu.errors import InputError
from fpemu.format import Format
from fpemu.scaling.recipe import Recipe

__all__ = ["Watch", "watch"]

Optimizer = torch.optim.Optimizer


class Watch:
    """A training run being watched; `watch` makes one, `with` starts and ends it."""

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        optimizers: Sequence[Optimizer],
        settings: Settings,
        trace: Trace,
        rank: int = 0,
    ) -> None:
        self.trace = trace
        self._settings, self._labels = settings, Labels()
        self._names, self._discover = Names(models), not models
        self._own = rank == 0 or not is_replicated(models.values())
        self._causes = Causes(trace, settings)
        self._causes.loss_scale = lambda: scalers.scale_of(self._scaler)
        self._stepping = Stepping(optimizers, self._trained, self._before, self._after)
        self._step, self._depth = 0, 0
        self._recording: Recording | None = None
        self._scaler: weakref.ref[Any] | None = None
        self._stepped = self._begun = False
        self._left_out: dict[str, str] = {}
        self._inputs: dict[str, list[str]] = {}

    @property
    def step(self) -> int:
        """The number of the training step that is going on, from 0."""
        return self._step

    @property
    def causes(self) -> list[FirstCause]:
        """What went wrong first, of each kind of thing the first: NaN, infinity, overflow."""
        return self._causes.found

    def next_step(self) -> None:
        """End the step: for runs without an optimizer, or whose steps are not one's calls."""
        self._end()
        self._step += 1
        self._start()

    def __enter__(self) -> Watch:
        if self._begun:
            raise InputError("this watch was entered before: call watch(...) for another")
        self._begun = True
        self._depth = modes.depth()
        self._stepping.install()
        scalers.listen(self)
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stepping.remove()
        scalers.stop(self)
        try:
            self._end()
        finally:
            modes.sweep()
            self._names.forget()
            self._scaler = None
            self.trace.close()

    # --- steps -------------------------------------------------------------------------------

    def _start(self) -> None:
        if not self._settings.recorded(self._step):
            return
        self._names.read()
        self._recording = Recording(
            self._step, self._settings, self._causes, self._names, self._labels,
            own=self._own, discover=self._discover, loss=self._loss,
        )  # fmt: skip
        self._recording.install(self._depth)

    def _end(self) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        self._note_emulation()
        recording.remove()
        recording.write(self.trace)
        if left_out := recording.unsupported.items() - self._left_out.items():
            self._left_out.update(left_out)
            self.trace.metadata["not_watched"] = self._left_out
        if any(self._inputs.get(name) != names for name, names in recording.inputs.items()):
            self._inputs.update(recording.inputs)
            self.trace.metadata[READ_BY_PRODUCTS] = self._inputs

    def _note_emulation(self) -> None:
        """Keep under which policy, and so with which accumulator, a run is emulated."""
        emulation = sys.modules.get("fpemu.torch.emulation")  # not loaded: none is entered
        policy = emulation.emulated() if emulation else None
        if policy is not None and self.trace.metadata.get("emulated") != policy:
            self.trace.metadata["emulated"] = policy

    def _loss(self, value: float) -> None:
        scale = scalers.scale_of(self._scaler) or 1.0
        self.trace.scalar(self._step, "loss", value / scale)

    # --- optimizers and scalers --------------------------------------------------------------

    def _trained(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer has a parameter that is watched."""
        weight, groups = self._names.weight, optimizer.param_groups
        return any(weight(one) is not None for group in groups for one in group["params"])

    def _before(self, optimizer: Optimizer) -> None:
        if self._recording:
            self._note_emulation()
            self._recording.before(optimizer, find_place(2))

    def _after(self, optimizer: Optimizer) -> None:
        skipped = bool(getattr(optimizer, "found_inf", 0))  # fused: the kernel itself skipped it
        if self._recording:
            self._recording.after(optimizer, skipped)
        self._stepped = not skipped
        if not skipped and self._stepping.ends(optimizer):
            self.next_step()

    def before_scale(self, scaler: Any) -> None:
        """Note a scaler; its product is none of the run's own tensors."""
        if self._scaler is None or self._scaler() is not scaler:
            self._scaler = weakref.ref(scaler)
        if self._recording:
            self._recording.pause()

    def after_scale(self, scaler: Any) -> None:
        """Go on after a scaler's product."""
        if self._recording:
            self._recording.resume()

    def before_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """Note the scale that this step's gradients carry."""
        self._stepped = False
        scale = scalers.scale_of(self._scaler)
        if scale is not None and self._recording and self._stepping.counts(optimizer):
            self.trace.scalar(self._step, "loss_scale", scale)
            self.trace.metadata["recorded_loss_scale"] = scale

    def after_scaler_step(self, scaler: Any, optimizer: Optimizer) -> None:
        """Note a step that the scaler skipped: the optimizer has not stepped."""
        if self._stepped or not self._stepping.counts(optimizer):
            return
        scale = scalers.scale_of(self._scaler)
        message = "gradients not finite: the scaler skipped the step"
        self.trace.event(self._step, "", SKIP, message, loss_scale=scale)
        if self._stepping.ends(optimizer):
            self.next_step()


def watch(
    model: torch.nn.Module | Iterable[torch.nn.Module] | Mapping[str, torch.nn.Module] | None,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    *,
    path: PathLike | None = None,
    every: int = 1,
    kinds: str | Iterable[str] | None = None,
    tensors: str = "all",
    to: str | Format | Cast | None = None,
    stop_on: str | Iterable[str] = (),
    lead_up: int = 16,
    skip: str | Iterable[str] = (),
    unsupported: str = "raise",
    evaluation: bool = False,
    blocks: int | None = None,
    recipes: str | Recipe | Iterable[str | Recipe] = (),
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Watch:
    """Record a training run's tensors in a Trace, and what first goes wrong in it.

    >>> import torch
    >>> from fpemu.analysis import watch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with watch(model, optimizer, to="float16") as run:
    ...     for step in range(2):
    ...         loss = model(torch.ones(3, 4)).square().mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    >>> run.trace.steps(), run.causes
    ([0, 1], [])
    >>> [record.name for record in run.trace.records(kind="update", step=0)]
    ['0.weight', '0.bias', '2.weight', '2.bias']

    model: a module, several (a list, or a dict of names), or None for every module with
    parameters that the run calls. optimizer: one or several, the last of which ends a step; None:
    those that have the models' parameters. path: a file for the trace (in several processes one
    each: run-rank1.fpemu), else it stays in memory. every: record steps 0, every, 2 * every, ...;
    nothing is attached to the others but a hook that counts them. kinds: those recorded, unless
    given all. tensors: "all", or "matmul" for what matrix products and convolutions are given,
    their weights, and the gradients of their results. to: a what-if format, whose overflows count
    as first causes. stop_on: "overflow" (a value became infinite, or leaves the range of `to`),
    "nan", or both: raises FirstCauseError there. lead_up: how many tensors before it are kept.
    skip: patterns of names to leave out. unsupported: "raise", or "skip" to leave out and list in
    the metadata ("not_watched") sparse, quantized, complex, float64 and meta tensors; the
    policy of an emulation that the run is in stands there too ("emulated"). evaluation: whether
    forward passes without gradients are recorded too. blocks: count blocks of so many
    numbers along the last axis too (32 for MX, 16 for NVFP4), for the report's section on them.
    recipes: count too what these make of each tensor, along its last axis: names such as "mxfp8"
    and "nvfp4", texts or Recipes (`fpemu.scaling`), for what-if, advice and the report.
    Training is the same to the bit with and without. Infinities that the script puts in itself
    (masks) are not counted. Gradients are recorded as they are, times the loss scale of a
    GradScaler (scalar "loss_scale", metadata "recorded_loss_scale"); weight gradients as each
    backward pass gives them.
    Errors: InputError for options and parameters that cannot be used, before anything is made;
    for a tensor met later, and then nothing of that step is recorded. MissingExtraError without
    PyTorch.
    """
    settings = read_settings(
        every=every, kinds=kinds, tensors=tensors, to=to, stop_on=stop_on, lead_up=lead_up,
        skip=skip, unsupported=unsupported, evaluation=evaluation, blocks=blocks, recipes=recipes,
    )  # fmt: skip
    models, optimizers = models_of(model), _optimizers(optimizer)
    _check_parameters(Names(models), settings)
    rank, world = rank_and_world()
    given = {} if metadata is None else metadata
    if not isinstance(given, Mapping):
        raise InputError(f"metadata {given!r:.80}: must be a dict, such as {{'seed': 1}}")
    facts = {
        **given,
        "watched": _shown(settings),
        "torch": torch.__version__,
        **({"to": settings.to.to_json()} if settings.to else {}),
        **({"rank": rank, "processes": world} if world > 1 else {}),
    }
    if path is None:
        trace = Trace(metadata=facts)
    else:
        trace = Trace.create(own_path(path, rank, world), metadata=facts, overwrite=overwrite)
    return Watch(models, optimizers, settings, trace, rank)


def _optimizers(optimizer: Optimizer | Iterable[Optimizer] | None) -> list[Optimizer]:
    if optimizer is None:
        return []
    if isinstance(optimizer, Optimizer):
        return [optimizer]
    found = list(optimizer) if isinstance(optimizer, Iterable) else [optimizer]
    for one in found:
        if not isinstance(one, Optimizer):
            raise InputError(
                f"optimizer {type(one).__name__}: no torch.optim.Optimizer; give the optimizer, "
                "or None to have it found"
            )
    return found


def _check_parameters(names: Names, settings: Settings) -> None:
    if not settings.skip_unsupported:
        for weight, name in names.parameters().items():
            if not settings.skipped(name):
                check_tensor(weight, name)


def _shown(settings: Settings) -> dict[str, Any]:
    """The settings as a report shows them."""
    return {
        "every": settings.every,
        "tensors": "matmul" if settings.matmul else "all",
        "kinds": sorted(settings.kinds),
        **({"recipes": [one.name for one in settings.recipes]} if settings.recipes else {}),
    }
