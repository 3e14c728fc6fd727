#!/usr/bin/env python3
"""Writes the seeds of fuzz_import: small models that together use every op the importer lowers, in its main forms.

    python3 tests/fuzz/make_seeds.py            # needs the onnx package; into tests/fuzz/corpus/import

Names are short and weights small, so that a mutation hits structure. A model called bad_* must be refused.
"""
import pathlib

import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).parent / "corpus" / "import"
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


class Graph:
    """A model being written: nodes in order, and the initializers they need."""

    def __init__(self, *dims, kind=FLOAT, opset=18):
        self.nodes, self.weights, self.inputs, self.functions, self.opset = [], [], [], [], opset
        self.seed = 0
        self.input("x", kind, dims)

    def input(self, name, kind, dims):
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(dims)))

    def weight(self, name, *dims):
        values = np.sin(np.arange(self.seed, self.seed + int(np.prod(dims)))).astype(np.float32).reshape(dims)
        self.seed += 7
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, name, values, dtype=np.int64):
        if dtype is np.float32 and np.size(values) == 1:
            name = "/" + name  # as PyTorch's exporter does; another name would be a weight's
        self.weights.append(numpy_helper.from_array(np.array(values, dtype=dtype), name))
        return name

    def op(self, kind, *inputs, outputs=None, name="", meta=None, **attributes):
        outputs = outputs or [f"v{len(self.nodes)}"]
        node = helper.make_node(kind, list(inputs), outputs, name=name, **attributes)
        for key, value in (meta or {}).items():
            node.metadata_props.add(key=key, value=value)
        self.nodes.append(node)
        return outputs[0] if len(outputs) == 1 else outputs

    def save(self, name, output):
        out = helper.make_tensor_value_info(output, FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", self.inputs, [out], self.weights)
        opsets = [helper.make_opsetid("", self.opset)] + ([helper.make_opsetid("f", 1)] if self.functions else [])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=self.functions)
        model.producer_name = ""
        (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString())


def convolutions():
    g = Graph("N", 2, 6, 6)
    y = g.op("Conv", "x", g.weight("c.weight", 4, 2, 3, 3), g.weight("c.bias", 4), pads=[1, 1, 1, 1], strides=[2, 2])
    y = g.op("Relu", y)
    y = g.op("Conv", y, g.weight("d.weight", 4, 1, 3, 3), group=4, dilations=[1, 1], auto_pad="SAME_UPPER")
    y = g.op("MaxPool", y, kernel_shape=[2, 2], strides=[1, 1], ceil_mode=1)
    y = g.op("GlobalAveragePool", y)
    g.save("conv2d", g.op("Flatten", y))

    g = Graph("N", 2, 9)
    weights = [g.weight("c.weight", 4, 1, 3), g.weight("c.bias", 4)]
    y = g.op("Conv", "x", *weights, group=2, auto_pad="SAME_LOWER", strides=[2])
    y = g.op("AveragePool", y, kernel_shape=[2], strides=[2], pads=[1, 0], count_include_pad=1)
    y = g.op("HardSwish", y)
    g.save("conv1d", g.op("Flatten", g.op("GlobalAveragePool", y)))

    g = Graph("N", 4, 4, 4)
    norm = [g.weight("b.weight", 4), g.weight("b.bias", 4), g.weight("b.running_mean", 4), g.weight("b.running_var", 4)]
    y = g.op("BatchNormalization", "x", *norm, epsilon=1e-3, momentum=0.8)
    y = g.op("BatchNormalization", y, *norm)
    y = g.op("Add", g.op("AveragePool", y, kernel_shape=[4, 4]), g.op("ReduceMean", y, g.constant("a", [2, 3])))
    g.save("batch_norm", g.op("Reshape", y, g.constant("s", [0, -1])))


def norms():
    g = Graph("N", 3, 8)
    y = g.op("LayerNormalization", "x", g.weight("n.weight", 8), g.weight("n.bias", 8), axis=-1, epsilon=1e-6)
    g.save("layer_norm", g.op("LayerNormalization", y, g.weight("m.weight", 3, 8), axis=1))

    # Group norm as the older exporter writes it: an instance norm of groups, then a scale per channel.
    g = Graph("N", 4, 2, 2)
    y = g.op("Reshape", "x", g.constant("s", [0, 2, -1]))
    y = g.op("InstanceNormalization", y, g.constant("one", [1, 1], np.float32), g.constant("zero", [0, 0], np.float32))
    y = g.op("Reshape", y, g.op("Shape", "x"))
    y = g.op("Mul", y, g.weight("n.weight", 4, 1, 1))
    y = g.op("Add", y, g.weight("n.bias", 4, 1, 1))
    g.save("instance_norm", g.op("Flatten", y))

    g = Graph("N", 4, 5, opset=20)
    y = g.op("InstanceNormalization", "x", g.weight("i.weight", 4), g.weight("i.bias", 4))
    y = g.op("GroupNormalization", y, g.weight("n.weight", 4), g.weight("n.bias", 4), num_groups=2)
    g.save("group_norm", g.op("ReduceMean", y, g.constant("a", [2]), keepdims=0))

    # Layer norm in its parts.
    g = Graph("N", 6)
    centred = g.op("Sub", "x", g.op("ReduceMean", "x", axes=[-1]))
    variance = g.op("ReduceMean", g.op("Pow", centred, g.constant("two", 2.0, np.float32)), axes=[-1])
    y = g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, g.constant("eps", 1e-5, np.float32))))
    y = g.op("Mul", y, g.weight("n.weight", 6))
    g.opset = 17
    g.save("norm_parts", g.op("Add", y, g.weight("n.bias", 6)))


def products():
    g = Graph("N", 4)
    y = g.op("Gemm", "x", g.weight("a.weight", 5, 4), g.weight("a.bias", 5), transB=1)
    y = g.op("Tanh", y)
    g.save("gemm", g.op("Gemm", y, g.weight("b.weight", 5, 3), g.weight("b.bias", 1)))

    g = Graph("N", 3, 4)
    y = g.op("MatMul", "x", g.weight("a.weight", 4, 4))
    y = g.op("Add", g.weight("a.bias", 4), y)
    y = g.op("MatMul", y, g.op("Transpose", g.weight("b.weight", 5, 4), perm=[1, 0]))
    y = g.op("MatMul", y, g.op("Transpose", y, perm=[0, 2, 1]))
    g.save("matmul", y)

    g = Graph("N", 2, 3, 4)
    y = g.op("MatMul", "x", g.weight("a", 1, 1, 4, 3))
    y = g.op("Gemm", g.op("Reshape", y, g.constant("s", [-1, 9])), g.op("Relu", g.weight("w", 9, 2)))
    rows = g.op("Concat", g.op("Shape", "x", end=1), g.constant("t", [-1]), axis=0)
    g.save("matmul_broadcast", g.op("Reshape", y, rows))


def recurrent():
    for kind, gates in (("LSTM", 4), ("GRU", 3)):
        g = Graph("N", 3, 2)
        y = g.op("Transpose", "x", perm=[1, 0, 2])
        weights = [g.weight("w", 1, 2 * gates, 2), g.weight("r", 1, 2 * gates, 2), g.weight("b", 1, 4 * gates)]
        extra = {"linear_before_reset": 1} if kind == "GRU" else {}
        state = [g.constant("h", np.zeros((1, 1, 2)), np.float32)] if kind == "GRU" else []
        y, last = g.op(kind, y, *weights, *([""] + state if state else []), outputs=["y", "l"], hidden_size=2, **extra)
        y = g.op("Squeeze", y, g.constant("a", [1]))
        y = g.op("Gather", y, g.constant("i", -1), axis=0)
        g.save(kind.lower(), g.op("Add", y, g.op("Squeeze", last, g.constant("z", [0]))))

    # As the newer exporter has it: weights put together from PyTorch's, batch first by layout.
    g = Graph("N", 3, 2)
    part = g.weight("l.weight_ih_l0", 8, 2)
    zero = g.constant("z", [0])
    sections = [g.op("Slice", part, g.constant(f"s{i}", [2 * i]), g.constant(f"e{i}", [2 * i + 2]), zero)
                for i in (0, 3, 1, 2)]
    w = g.op("Unsqueeze", g.op("Concat", *sections, axis=0), g.constant("u", [0]))
    y = g.op("LSTM", "x", w, g.weight("r", 1, 8, 2), outputs=["y"], hidden_size=2, layout=1)
    g.save("lstm_parts", g.op("ReduceSum", y, g.constant("k", [1, 2]), keepdims=0))


def attention(name, mask):
    g = Graph("N", 4, 4)
    shape = g.constant("s", [0, 0, 2, 2])
    heads = [g.op("Reshape", g.op("MatMul", "x", g.weight(n, 4, 4)), shape) for n in ("q", "k", "v")]
    q, v = (g.op("Transpose", h, perm=[0, 2, 1, 3]) for h in (heads[0], heads[2]))
    k = g.op("Transpose", heads[1], perm=[0, 2, 3, 1])
    scores = g.op("Div", g.op("MatMul", q, k), g.constant("d", 2 ** 0.5, np.float32))
    if mask == "add":
        hidden = np.triu(np.full((4, 4), np.finfo(np.float32).min), 1)
        scores = g.op("Add", scores, g.constant("m", hidden, np.float32))
    if mask == "where":
        seen = g.op("Trilu", g.constant("m", np.ones((1, 1, 4, 4)), np.bool_), upper=0)
        scores = g.op("Where", seen, scores, g.constant("f", -np.inf, np.float32))
    p = g.op("Softmax", scores, axis=-1)
    if mask == "where":
        p = g.op("Where", g.op("IsNaN", p), g.constant("z", 0, np.float32), p)
    y = g.op("Transpose", g.op("MatMul", p, v), perm=[0, 2, 1, 3])
    g.save(name, g.op("MatMul", g.op("Reshape", y, g.constant("t", [0, 0, 4])), g.weight("o", 4, 3)))


def joined_attention():
    # One product for q, k and v, taken apart after.
    g = Graph("N", 3, 4)
    parts = g.op("Split", g.op("MatMul", "x", g.weight("w", 4, 12)), outputs=["q", "k", "v"], axis=2, num_outputs=3)
    shape = g.constant("s", [0, 0, 2, 2])
    q, k, v = (g.op("Transpose", g.op("Reshape", p, shape), perm=[0, 2, 1, 3]) for p in parts)
    scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.constant("d", 0.5, np.float32))
    y = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores), v), perm=[0, 2, 1, 3])
    g.save("attention_joined", g.op("Reshape", y, g.constant("t", [0, 0, 4])))

    # PyTorch's MultiheadAttention: positions first, the batch of 2 and the heads in one dimension.
    g = Graph(2, 3, 4)
    y = g.op("Transpose", "x", perm=[1, 0, 2])
    shape = g.constant("s", [3, 4, 2])
    q, k, v = (g.op("Transpose", g.op("Reshape", g.op("MatMul", y, g.weight(n, 4, 4)), shape), perm=[1, 0, 2])
               for n in ("q", "k", "v"))
    p = g.op("Softmax", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 1])))
    y = g.op("Reshape", g.op("Transpose", g.op("MatMul", p, v), perm=[1, 0, 2]), g.constant("r", [6, 4]))
    y = g.op("Gemm", y, g.weight("o.weight", 4, 4), transB=1)
    y = g.op("Add", g.op("Reshape", y, g.constant("t", [3, 2, 4])), g.weight("o.bias", 4))
    g.save("attention_positions_first", g.op("Transpose", y, perm=[1, 0, 2]))


def embeddings():
    g = Graph("N", 4, kind=INT64)
    y = g.op("Gather", g.weight("e.weight", 5, 3), "x")
    y = g.op("Add", y, g.op("Gather", g.weight("p.weight", 4, 3), g.constant("i", [[0, 1, 2, 3]])))
    g.save("embedding", g.op("MatMul", y, g.weight("h", 3, 5)))

    # The last layer has the embedding's weight.
    g = Graph("N", 2, kind=INT64)
    y = g.op("Gather", g.weight("e.weight", 5, 3), "x")
    g.save("tied", g.op("MatMul", y, g.op("Transpose", "e.weight")))

    g = Graph("N", 4, 1, kind=INT64)
    g.save("gather_nd", g.op("GatherND", g.weight("e.weight", 5, 3), "x"))

    # Tokens with a mask of what is padding, as Hugging Face's models turn it into what is added to scores.
    g = Graph("N", 4, kind=INT64)
    g.input("attention_mask", INT64, ("N", 4))
    g.input("token_type_ids", INT64, ("N", 4))
    g.input("position_ids", INT64, ("N", 4))
    y = g.op("Gather", g.weight("e.weight", 5, 4), "x")
    y = g.op("Add", y, g.op("Gather", g.weight("t.weight", 2, 4), "token_type_ids"))
    y = g.op("Add", y, g.op("Gather", g.weight("p.weight", 4, 4), "position_ids"))
    m = g.op("Cast", g.op("Unsqueeze", "attention_mask", g.constant("u", [1])), to=FLOAT)
    m = g.op("Mul", g.op("Sub", g.constant("one", 1, np.float32), m), g.constant("far", -3e38, np.float32))
    scores = g.op("Add", g.op("MatMul", y, g.op("Transpose", y, perm=[0, 2, 1])), m)
    g.save("mask_input", g.op("MatMul", g.op("Softmax", scores), y))


def movement():
    g = Graph("N", 4, 6)
    numbers = [g.constant(n, v) for n, v in (("b", [0, 1]), ("e", [4, 6]), ("a", [1, 2]), ("t", [2, 2]))]
    y = g.op("Slice", "x", *numbers)  # [N, 2, 3]
    y = g.op("Pad", y, g.constant("p", [0, 1, 0, 0, 0, 1]))  # [N, 3, 4]
    y = g.op("Tile", y, g.constant("r", [1, 2, 1]))  # [N, 6, 4]
    y, z = g.op("Split", y, g.constant("s", [2, 4]), outputs=["y", "z"], axis=1)
    g.save("slice_pad_tile", g.op("Concat", z, y, axis=1))

    g = Graph("N", 1, 6)
    y = g.op("Expand", "x", g.constant("s", [1, 3, 1]))
    y, z, w = g.op("Split", y, outputs=["y", "z", "w"], axis=-1, num_outputs=3)
    y = g.op("Gather", g.op("Concat", y, w, axis=2), g.constant("i", [0, 2, 3, -1]), axis=2)
    y = g.op("Squeeze", g.op("Unsqueeze", y, g.constant("u", [1, -1])), g.constant("q", [1, 4]))
    g.save("expand_split_gather", g.op("ReduceL2", y, g.constant("k", [1]), keepdims=1))

    # A class token before the patches, for any batch.
    g = Graph("N", 3, 4)
    n = g.op("Gather", g.op("Shape", "x"), g.constant("z", 0))
    rows = g.op("Concat", g.op("Unsqueeze", n, g.constant("u", [0])), g.constant("o", [-1, -1]), axis=0)
    rows = g.op("Where", g.op("Equal", rows, g.constant("m", -1)), g.constant("i", [1, 1, 1]), rows)
    y = g.op("Concat", g.op("Expand", g.weight("t", 1, 1, 4), rows), "x", axis=1)
    g.save("class_token", g.op("Gather", y, g.constant("f", 0), axis=1))

    g = Graph("N", 2, 8)
    s = g.op("Shape", "x")
    half = g.op("Div", g.op("Gather", s, g.constant("two", 2)), g.constant("d", 2))
    ends = g.op("Mul", half, g.op("Cast", g.constant("m", [1.0], np.float32), to=INT64))
    y = g.op("Slice", "x", g.constant("b", [0]), ends, g.constant("a", [-1]))
    total = g.op("Size", y)
    y = g.op("Reshape", y, g.op("Concat", g.op("Slice", s, g.constant("p", [0]), g.constant("q", [1])),
                                g.op("Unsqueeze", g.op("Div", total, g.op("Gather", s, g.constant("z", 0))),
                                     g.constant("u", [0])), axis=0))
    g.save("shape_arithmetic", y)


def elementwise():
    g = Graph("N", 5)
    y = "x"
    for kind in ("Sigmoid", "Exp", "Log", "Erf", "Abs", "Softplus", "Mish", "Neg", "Identity"):
        y = g.op(kind, y)
    y = g.op("LeakyRelu", y, alpha=0.2)
    y = g.op("Elu", y, alpha=0.5)
    y = g.op("HardSigmoid", y, alpha=0.3)
    g.save("activations", g.op("LogSoftmax", y, axis=1))

    g = Graph("N", 5, opset=20)
    y = g.op("Gelu", "x", approximate="tanh")
    y = g.op("Clip", y, g.constant("l", -1, np.float32), g.constant("h", 6, np.float32))
    y = g.op("Max", y, g.constant("z", 0, np.float32))
    y = g.op("Min", g.constant("s", 6, np.float32), y)
    for name, exponent in (("p", 3), ("o", 0.5), ("n", -0.5)):
        y = g.op("Pow", y, g.constant(name, exponent, np.float32))
    g.save("bounds_powers", g.op("Sum", y, "x", g.op("Reciprocal", y)))

    # gelu, silu and hard swish by their formulas.
    g = Graph("N", 4)
    e = g.op("Erf", g.op("Div", "x", g.constant("r", 2 ** 0.5, np.float32)))
    gate = g.op("Add", e, g.constant("one", 1, np.float32))
    y = g.op("Mul", g.op("Mul", "x", gate), g.constant("h", 0.5, np.float32))
    y = g.op("Mul", y, g.op("Sigmoid", y))
    six = g.constant("six", 6, np.float32)
    c = g.op("Clip", g.op("Add", y, g.constant("t", 3, np.float32)), g.constant("z", 0, np.float32), six)
    g.save("formulas", g.op("Div", g.op("Mul", y, c), six))

    # gelu by tanh in both of its forms, and mish.
    g = Graph("N", 4)
    number = lambda name, value: g.constant(name, value, np.float32)
    one, half, root, small = number("one", 1), number("h", 0.5), number("r", (2 / np.pi) ** 0.5), number("s", 0.044715)
    cubic = g.op("Add", "x", g.op("Mul", small, g.op("Pow", "x", number("three", 3))))
    gate = g.op("Add", g.op("Tanh", g.op("Mul", cubic, root)), one)
    y = g.op("Mul", g.op("Mul", "x", half), gate)
    square = g.op("Add", g.op("Mul", g.op("Mul", y, small), y), one)
    gate = g.op("Add", g.op("Tanh", g.op("Mul", g.op("Mul", y, root), square)), one)
    y = g.op("Mul", g.op("Mul", half, y), gate)
    y = g.op("Mul", y, g.op("HardSigmoid", y, alpha=1 / 6))
    g.save("formulas_tanh", g.op("Mul", y, g.op("Tanh", g.op("Softplus", y))))

    g = Graph("N", 4)
    y = g.op("Mul", "x", g.constant("c", [1, 2, 3, 4], np.float32))
    known = g.constant("m", [True, False, True, True], np.bool_)
    y = g.op("Where", known, y, g.op("Relu", "x"))
    g.save("where", g.op("Where", known, g.constant("f", 2, np.float32), y))

    g = Graph("N", 4)
    y = g.op("Dropout", "x", g.constant("r", 0.25, np.float32), g.constant("t", True, np.bool_))
    y = g.op("Dropout", y)
    u = g.op("RandomUniformLike", g.op("Slice", y, g.constant("b", [0]), g.constant("e", [1]), g.constant("a", [1])))
    keep = g.op("Cast", g.op("Less", u, g.constant("p", 0.8, np.float32)), to=FLOAT)
    g.save("dropout", g.op("Mul", y, keep))


def batches():
    # Exported for a batch of 2, which is inside shapes.
    g = Graph(2, 4, 3)
    y = g.op("Reshape", "x", g.constant("s", [8, 3]))
    y = g.op("Gemm", y, g.weight("a.weight", 4, 3), g.weight("a.bias", 4), transB=1)
    y = g.op("Reshape", y, g.constant("t", [2, 2, 2, 4]))
    y = g.op("Transpose", y, perm=[0, 2, 1, 3])
    y = g.op("Reshape", y, g.constant("u", [4, 2, 4]))
    g.save("static_batch", g.op("Reshape", y, g.constant("v", [2, 2, -1])))

    g = Graph(2, 3, 4)
    y = g.op("Expand", g.constant("expand", [[range(4)]] * 2, np.float32), g.constant("s", [2, 1, 4]))
    y = g.op("Concat", y, "x", axis=1)
    y = g.op("Add", y, g.constant("m", np.full((2, 4, 4), -np.inf), np.float32))
    g.save("static_rows", g.op("Flatten", y, axis=1))


def provenance():
    # As the newer exporter records modules and calls; two biases that are stored once.
    g = Graph("N", 4)
    meta = lambda scope, weight: {
        "pkg.torch.onnx.name_scopes": f"['', '{scope}', 'linear']",
        "pkg.torch.onnx.fx_node": f"%l = call_function[target=l](args = (%x, %p_{weight}_weight, %p_{weight}_bias))"}
    y = g.op("Gemm", "x", g.weight("a.weight", 4, 4), g.weight("a.bias", 4), name="n0", transB=1, meta=meta("a", "a"))
    y = g.op("Gemm", y, g.weight("val_1", 4, 3), "a.bias", name="n1", meta=meta("b.c", "b_c"))
    g.weights[1].dims[0] = 3
    g.weights[1].raw_data = g.weights[1].raw_data[:12]
    g.nodes[0].input.pop()
    g.save("metadata", g.op("Mul", y, g.weight("mul_3", 3), meta={"pkg.torch.onnx.name_scopes": "['', 'z', 'mul']"}))

    # As the older exporter does: modules in nodes' names, weights renamed.
    g = Graph("N", 4)
    y = g.op("MatMul", "x", g.weight("onnx::MatMul_1", 4, 4), name="/e/e.0/fc/MatMul")
    y = g.op("Add", g.weight("e.0.fc.bias", 4), y, name="/e/e.0/fc/Add")
    g.save("node_names", g.op("MatMul", y, g.weight("onnx::MatMul_2", 4, 2), name="/head/MatMul"))

    # Numbers beyond any weight's are none that train.
    g = Graph("N", 4)
    far = g.constant("far", np.full((4, 4), 1e5), np.float32)
    y = g.op("Gemm", "x", far, g.constant("farther", np.full(4, 1e6), np.float32), transB=1)
    g.save("untrained", g.op("MatMul", y, g.weight("head", 4, 2)))

    g = Graph("N", 4)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    inner = [helper.make_node("MatMul", ["a", "b"], ["m"]), helper.make_node("LeakyRelu", ["m"], ["r"])]
    inner[1].attribute.append(helper.make_attribute_ref("alpha", AttributeProto.FLOAT, ref_attr_name="slope"))
    outer = [helper.make_node("In", ["a", "b"], ["t"], domain="f", slope=0.1),
             helper.make_node("Add", ["t", "a"], ["r"])]
    g.functions = [helper.make_function("f", "In", ["a", "b"], ["r"], inner, imports, ["slope"]),
                   helper.make_function("f", "Out", ["a", "b"], ["r"], outer, imports)]
    y = g.op("Out", "x", g.weight("w", 4, 4), domain="f", name="l")
    g.save("functions", g.op("Out", y, g.weight("u", 4, 4), domain="f"))


def refused():
    g = Graph("N", 4)
    g.save("bad_ops", g.op("TopK", g.op("Cos", "x"), g.constant("k", [1]), outputs=["a", "b"])[0])

    g = Graph("N", "T", 4)
    g.save("bad_dimension", g.op("Relu", "x"))

    g = Graph("N", 4)
    g.input("y", FLOAT, ("N", 4))
    g.save("bad_second_input", g.op("Add", "x", "y"))

    g = Graph("N", 4)
    g.save("bad_constant_output", g.op("Add", g.constant("a", [1]), g.constant("b", [2])))

    g = Graph("N", 4)
    g.save("bad_conv", g.op("Conv", "x", g.weight("w", 2, 3, 1, 1)))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    convolutions()
    norms()
    products()
    recurrent()
    for name, mask in (("attention", ""), ("attention_causal", "add"), ("attention_where", "where")):
        attention(name, mask)
    joined_attention()
    embeddings()
    movement()
    elementwise()
    batches()
    provenance()
    refused()


if __name__ == "__main__":
    main()
