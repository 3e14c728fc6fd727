"""The ways to export a model that the table compares, as docs/models.md has them."""

import pathlib
import sys
import traceback
from dataclasses import dataclass

import torch
from exports.case import EXPORT_BATCH, Tokens, built, inputs_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))
import overtake_export  # noqa: E402


@dataclass
class File:
    path: pathlib.Path
    state: dict  # the model's after the export, which may have moved running statistics


class Refused(Exception):
    """Our own exporter does not take the model."""


def _example(case):
    return torch.from_numpy(inputs_of(case, EXPORT_BATCH))


def _file(path, model):
    return File(path, model.state_dict())


def documented(case, folder):
    """By Overtake's own function, through PyTorch's TorchScript exporter."""
    model, path = built(case), folder / "documented.onnx"
    try:
        overtake_export.export(model, _example(case), path)
    except ValueError as error:
        if traceback.extract_tb(error.__traceback__)[-1].filename == overtake_export.__file__:
            raise Refused(str(error)) from None
        raise
    return {"documented": _file(path, model)}


def _by_torchscript(case, path, **options):
    name = "input_ids" if isinstance(case.input, Tokens) else "input"
    model = built(case)
    torch.onnx.export(model, (_example(case),), path, input_names=[name], dynamic_axes={name: {0: "batch"}},
                      training=torch.onnx.TrainingMode.TRAINING, dynamo=False, **options)  # fmt: skip
    return _file(path, model)


def torchscript(case, folder):
    return {"torchscript": _by_torchscript(case, folder / "torchscript.onnx", do_constant_folding=False)}


def torchscript_folded(case, folder):
    """With the folding of constants, which is that exporter's default."""
    return {"torchscript-folded": _by_torchscript(case, folder / "torchscript-folded.onnx")}


def dynamo(case, folder):
    """Both forms of one capture: dynamo=True does what optimize() does to what optimize=False gives."""
    model = built(case)
    program = torch.onnx.export(model, (_example(case),), dynamo=True, optimize=False, verbose=False)
    program.save(folder / "dynamo-plain.onnx")
    program.optimize()
    program.save(folder / "dynamo.onnx")
    return {form: _file(folder / f"{form}.onnx", model) for form in ("dynamo", "dynamo-plain")}


# Of each form the function that writes it, which may write another with it.
FORMS = {"documented": documented, "torchscript": torchscript, "dynamo": dynamo, "dynamo-plain": dynamo}
MORE_FORMS = {"torchscript-folded": torchscript_folded}


def export(case, forms, folder):
    """Of each form its File or the exception of the exporter. They are kept in the folder, too, for reopen()."""
    done = {}
    for form in forms:
        if form in done:
            continue
        write = {**FORMS, **MORE_FORMS}[form]
        try:
            done |= write(case, folder)
        except Exception as error:  # whatever an exporter throws
            done |= {other: _plain(error) for other, function in FORMS.items() if function is write} | {
                form: _plain(error)
            }
    done = {form: done[form] for form in forms}
    torch.save(done, folder / KEPT)
    return done


KEPT = "exported.pt"


def _plain(error):
    """Without what cannot be kept in a file."""
    return error if isinstance(error, Refused) else RuntimeError(f"{type(error).__name__}: {error}")


def reopen(forms, folder):
    """What an earlier export() left in the folder, or None if there is not all."""
    if not (folder / KEPT).exists():
        return None
    done = torch.load(folder / KEPT, weights_only=False)
    if not set(forms) <= set(done):
        return None
    for what in done.values():
        if isinstance(what, File):
            what.path = folder / what.path.name
    return {form: done[form] for form in forms}
