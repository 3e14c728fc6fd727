"""Trains a file with Overtake and says how what it gives lies beside PyTorch."""

import json
import shlex
import subprocess

import numpy as np
import onnx
from exports.case import built
from exports.reference import MOMENTUM, MOST_ROUNDING, STEPS, TOLERANCE
from safetensors.numpy import load_file

SECONDS = 120  # for one call of the program

EXACT, REFUSED, NOT_EXPORTED = "exact", "refused", "not exported"
# Not as in PyTorch, because the file does not say what is trained, and the program says just that.
TOLD = "told"
OWN_EXPORT = "overtake_export.py"
DIFFERENT, UNNAMED, CRASHED, UNCLEAR = "DIFFERENT", "UNNAMED", "CRASHED", "UNCLEAR"
BAD = (DIFFERENT, UNNAMED, CRASHED, UNCLEAR)


class Stopped(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


def _call(command, folder):
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, errors="replace")
    except subprocess.TimeoutExpired:
        raise Stopped(None, f"no end after {SECONDS} s") from None
    with (folder / "commands.txt").open("a") as log:
        log.write(f"{shlex.join(command)}\n# exit code {done.returncode}\n{done.stderr}\n")
    if done.returncode != 0:
        raise Stopped(done.returncode, done.stderr.strip())
    return done


def _trained(overtake, case, rate, path, folder):
    """The losses of the steps, one run for each, the weights after the last, and what the program said."""
    losses, weights, saved = [], folder / f"{path.stem}.safetensors", f"saved-{path.stem}"
    for left in [weights, *folder.glob(f"{saved}*")]:  # by an earlier run
        left.unlink(missing_ok=True)
    for steps in range(1, STEPS + 1):
        done = _call([overtake, "train", path.name, "--data", "npy:x.npy,y.npy,x.npy,y.npy", "--batch", str(case.batch),
                     "--loss", case.loss, "--lr", repr(rate), "--momentum", str(MOMENTUM), "--steps",
                     str(steps), "--schedule", "in-order", "--no-trials", "--threads", "1", "--json"]
                    + (["--save", saved] if steps == STEPS else []), folder)  # fmt: skip
        losses.append(json.loads(done.stdout.strip().splitlines()[-1])["loss"])
    _call([overtake, "export", saved, "-o", weights.name], folder)
    return losses, load_file(weights), done.stderr


def _names_in(path, model):
    """What a refusal may name: parameters, buffers, modules, nodes, ONNX's operators, and PyTorch's that are gone."""
    graph = onnx.load(path, load_external_data=False).graph
    names = {name for n in graph.node for name in (n.op_type, n.name)} | {"detach()"}
    names |= {name for name, _ in model.named_modules()} | set(model.state_dict())
    return {name for name in names if any(c.isalpha() for c in name)}


def _tied(model):
    """Of each name in the state_dict: all names of the same memory."""
    by_memory, state = {}, model.state_dict()
    for name, t in state.items():
        by_memory.setdefault((t.data_ptr(), t.numel(), t.stride()) if t.numel() else name, []).append(name)
    return {name: names for names in by_memory.values() for name in names}


def _misfits(weights, model, unused):
    """Names and shapes that load_state_dict() would not take. Buffers that the file has as constants, and parameters
    that take no part, need not be there."""
    state, tied = model.state_dict(), _tied(model)
    wrong = [f"{name}: unknown" for name in weights if name not in state]
    for name, value in weights.items():
        if name in state and tuple(value.shape) != tuple(state[name].shape):
            wrong.append(f"{name}: {list(value.shape)} for {list(state[name].shape)}")
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    for name in state:
        is_state = name.endswith(("running_mean", "running_var"))
        if (name not in buffers or is_state) and not any(n in weights or n in unused for n in tied[name]):
            wrong.append(f"{name}: missing")
    return wrong


def _errors(losses, weights, reference):
    """Of every loss, update and running statistic: the error, its kind and name."""
    for step, loss in enumerate(losses):
        yield reference.error("losses", step, loss), "losses", step
    for name, value in weights.items():
        if name in reference.truth.updates:
            update = value.astype(np.float64) - reference.start[name].double().numpy()
            yield reference.error("updates", name, update), "updates", name
        elif np.issubdtype(value.dtype, np.floating):
            yield reference.error("states", name, value.astype(np.float64)), "states", name
        elif value not in (STEPS, reference.truth.states[name]):  # an exporter's trace may count as a batch
            yield np.inf, "states", name


def _verdict_of(errors, reference):
    """The verdict, and what is off by more than the tolerance."""
    verdict, off = EXACT, []
    for error, kind, name in errors:
        if error <= TOLERANCE:
            continue
        rounding = reference.rounding(kind, name)
        if not error <= rounding:
            verdict = DIFFERENT
        elif error > MOST_ROUNDING and verdict == EXACT:
            verdict = UNCLEAR
        off.append(f"{kind} {name}: {error:.1e}, by rounding {rounding:.1e}")
    return verdict, off


def judge(overtake, case, path, reference, folder):
    """A row of the table, without the names of the model and the form."""
    model = built(case)
    try:
        losses, weights, said = _trained(overtake, case, reference.rate, path, folder)
    except Stopped as stopped:
        if stopped.code != 2:
            return {"verdict": CRASHED, "message": f"exit code {stopped.code}: {stopped.message}"}
        is_named = any(name in stopped.message for name in _names_in(path, model))
        return {"verdict": REFUSED if is_named else UNNAMED, "message": stopped.message}
    unused = {name for name, u in reference.truth.updates.items() if not u.any()}
    misfits = _misfits(weights, model, unused)
    states = reference.truth.states
    known = {name: w for name, w in weights.items() if name in states and w.shape == states[name].shape}
    errors = sorted(_errors(losses, known, reference), key=lambda e: -e[0])
    verdict, off = _verdict_of(errors, reference)
    if misfits:
        verdict, off = DIFFERENT, [f"{len(misfits)} names or shapes", *misfits[:8], *off]
    if verdict == DIFFERENT and not misfits and case.has_untold and OWN_EXPORT in said:
        verdict = TOLD
    return {"verdict": verdict, "message": "; ".join(off[:12]), "error": errors[0][0], "losses": losses,
            "losses_of_pytorch": reference.truth.losses}  # fmt: skip
