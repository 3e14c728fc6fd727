"""Exports a PyTorch model as an ONNX file that Overtake trains exactly as PyTorch would.

    from overtake_export import export                      # this file, copied or on the path; needs torch alone
    export(model, torch.randn(2, 3, 64, 64), "net.onnx")    # then: overtake train net.onnx --data npy:x.npy,y.npy

ONNX was made for inference: it has no word for what is trained. This writes beside the network, under the key
`overtake.training`, which tensors PyTorch trains (parameters that require a gradient and get one), which other tensors are
in the state_dict (buffers and frozen parameters), and which are one tensor under several names. detach(), .data and torch.no_grad()
become nodes where gradients stop, and embeddings keep their `padding_idx`. What cannot be told so is an error here:
custom autograd functions, hooks that change gradients, a batch size that the network computes with.
"""

import contextlib
import filecmp
import inspect
import json
import os
import tempfile
import warnings

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

KEY, VERSION, DOMAIN = "overtake.training", 1, "overtake"


def export(model, inputs, path, *, dynamic_axes=None, opset=17, dynamo=False):
    """Writes the ONNX file `path` (and, for large models, files beside it).

    inputs        an example batch, of at least 2 samples: a tensor, a tuple of them, or a dict by argument names.
                  The first dimension of each is the batch; Overtake trains with any.
    dynamic_axes  other dimensions that may change, {"input_ids": {1: "sequence"}}; `overtake train --set sequence=128`
    dynamo        use PyTorch's newer exporter (needs onnxscript); most networks go through the older one as well

    The model keeps its weights, running statistics and mode. One in evaluation mode is exported in training mode; one in
    training mode as it is, with what is in evaluation mode inside it.
    """
    args, kwargs = _arguments(inputs)
    names = _input_names(model, args, kwargs)
    axes = {name: {0: "batch"} | (dynamic_axes or {}).get(name, {}) for name in names}
    options = {"input_names": names, "dynamic_axes": axes, "opset_version": max(opset, 18) if dynamo else opset}
    with _in_training_mode(model):
        facts = _training_facts(model, args, kwargs)
        write = _export_by_dynamo if dynamo else _export_by_torchscript
        write(model, args, kwargs, path, options)
        if not dynamo:  # the newer exporter refuses a batch that it cannot change
            _check_batch(model, args, kwargs, path, options)
    _append_metadata(path, KEY, json.dumps(facts))


def _arguments(inputs):
    if isinstance(inputs, dict):
        args, kwargs = (), dict(inputs)
    else:
        args, kwargs = (tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)), {}
    for tensor in tree_leaves((args, kwargs)):
        if isinstance(tensor, torch.Tensor) and (tensor.dim() == 0 or tensor.shape[0] < 2):
            raise ValueError("the first dimension of every input is the batch; give an example of at least 2 samples")
    return args, kwargs


def _input_names(model, args, kwargs):
    """As the arguments of forward() are called: Overtake knows attention_mask, token_type_ids and position_ids."""
    positional = [p.name for p in inspect.signature(model.forward).parameters.values()
                  if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    positional += [f"input_{i}" for i in range(len(positional), len(args))]
    return positional[: len(args)] + list(kwargs)


@contextlib.contextmanager
def _in_training_mode(model):
    modes = {module: module.training for module in model.modules()}
    if not model.training:
        model.train()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextlib.contextmanager
def _unchanged(model):
    """What a forward pass moves (running statistics, the random generator) is put back."""
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        yield buffers
    with torch.no_grad():
        for buffer, value in buffers:
            buffer.copy_(value)


def _training_facts(model, args, kwargs):
    """Which tensors are trained: those that the gradient of an output reaches, and no others."""
    with _unchanged(model) as buffers:
        reached = _reached(tree_leaves(model(*args, **kwargs)))
        _check_states(model, {id(b) for b, value in buffers if not torch.equal(b, value)})
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ValueError(f"{name} has a hook on its gradient, which an ONNX file cannot hold; remove it")
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise ValueError(f"{name} has a backward hook, which an ONNX file cannot hold; remove it")
    facts = {"version": VERSION, "trained": [], "untrained": [], "same": {}}
    first_name = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not _is_real(tensor):
            continue
        if first_name.setdefault(id(tensor), name) != name:
            facts["same"][name] = first_name[id(tensor)]
        else:
            facts["trained" if id(tensor) in reached else "untrained"].append(name)
    return facts


def _check_states(model, changed):
    """Of what a forward pass changes, Overtake keeps the running statistics of batch norms."""
    for module_name, module in model.named_modules():
        is_norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
        for name, buffer in module.named_buffers(recurse=False):
            if id(buffer) in changed and not is_norm:
                raise ValueError(f"{module_name + '.' * bool(module_name)}{name} is changed by the forward pass, which an ONNX file cannot hold")
        if is_norm and module.track_running_stats and module.momentum is None:
            raise ValueError(f"{module_name} averages over all batches (momentum=None); give it a momentum")


def _reached(outputs):
    """The ids of the parameters that gradients of the outputs come to."""
    reached, seen = set(), set()
    open_nodes = [t.grad_fn for t in outputs if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    while open_nodes:
        node = open_nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            raise ValueError(f"{type(node).__name__.removesuffix('Backward')} is an autograd function of its own, whose "
                             "gradient an ONNX file cannot hold; write it with PyTorch's operators")  # fmt: skip
        if hasattr(node, "variable"):
            reached.add(id(node.variable))
        open_nodes += [next_node for next_node, _ in node.next_functions]
    return reached


class _StopsAreSeen(TorchFunctionMode):
    """Whatever loses its gradient outside an operator's own mathematics (no_grad, .data) does so by detach(), which the
    exporters record."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function == torch.Tensor.data.__get__:
            return args[0].detach()
        result = function(*args, **(kwargs or {}))
        if torch.is_grad_enabled() or not any(_needs_gradient(a) for a in tree_leaves((args, kwargs))):
            return result
        return tree_map(lambda t: t.detach() if _is_real(t) and t is not args[0] else t, result)


def _is_real(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _needs_gradient(value):
    return isinstance(value, torch.Tensor) and value.requires_grad


def _export_by_torchscript(model, args, kwargs, path, options):
    def detach(g, x):
        return g.op(f"{DOMAIN}::StopGradient", x).setType(x.type())

    @torch.onnx.symbolic_helper.parse_args("v", "v", "i", "b", "b")
    def embedding(g, weight, indices, padding, scales_by_frequency, _sparse):
        if scales_by_frequency:
            raise ValueError("an embedding with scale_grad_by_freq: Overtake has no such gradient")
        if padding < 0:
            return g.op("Gather", weight, indices)
        gathered = g.op("Gather", weight, indices)  # for its shape
        return g.op(f"{DOMAIN}::Embedding", weight, indices, padding_idx_i=padding).setType(gathered.type())

    symbolics = {"aten::detach": detach, "aten::embedding": embedding}
    opset = options["opset_version"]
    for name, symbolic in symbolics.items():
        torch.onnx.register_custom_op_symbolic(name, symbolic, opset)
    try:
        with _unchanged(model) as buffers, _StopsAreSeen(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hook = model.register_forward_hook(lambda *_: _put_back(buffers))
            try:
                torch.onnx.export(model, args, path, kwargs=kwargs or None, dynamo=False, do_constant_folding=False,
                                  training=torch.onnx.TrainingMode.PRESERVE, **options)  # fmt: skip
            finally:
                hook.remove()
    finally:
        for name in symbolics:
            torch.onnx.unregister_custom_op_symbolic(name, opset)


def _put_back(buffers):
    """Before the exporter reads them; untraced."""
    for buffer, value in buffers:
        buffer.data = value.clone()


def _export_by_dynamo(model, args, kwargs, path, options):
    axes = options.pop("dynamic_axes")
    dimensions = {label: torch.export.Dim(label) for of_input in axes.values() for label in of_input.values()}
    shapes = {name: {axis: dimensions[label] for axis, label in axes[name].items()} for name in axes}
    with _unchanged(model), _StopsAreSeen(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(program, (), path, dynamo=True, optimize=False, verbose=False, **options)


def _check_batch(model, args, kwargs, path, options):
    """The file of a batch with one sample more must be the same."""
    args, kwargs = tree_map(lambda t: torch.cat([t, t[:1]]) if isinstance(t, torch.Tensor) else t, (args, kwargs))
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(path))) as folder:
        other = os.path.join(folder, os.path.basename(path))
        _export_by_torchscript(model, args, kwargs, other, options)
        if not filecmp.cmp(path, other, shallow=False):
            os.remove(path)
            raise ValueError("the network computes with the size of the batch as a number that tracing cannot see "
                             "(len(x), int(x.shape[0]), .item()), so the file is good for one batch size alone; use "
                             "x.shape[0] as it is, and x.mean(0) for means")  # fmt: skip


def _append_metadata(path, key, value):
    """One more entry of ModelProto.metadata_props: messages of protobuf may be continued at the end."""

    def field(number, content):
        length, size = b"", len(content)
        while size >= 0x80:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    with open(path, "ab") as file:
        file.write(field(14, field(1, key.encode()) + field(2, value.encode())))
