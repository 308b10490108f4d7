"""Mistakes with networks of PyTorch, Keras and transformers, and the answers: what was found, and what to do."""

import pathlib
import re

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression

from onnxtrain import (
    Inputs,
    LoRA,
    OrtGradientClassifier,
    OrtGradientForwardBackward,
    OrtGradientRegressor,
    add_loss_output,
    load,
    save,
    trainable_weights,
)
from onnxtrain.convert.lookups import lengths_of_tables
from onnxtrain.errors import (
    ArgumentTypeError,
    ConvergenceError,
    DataError,
    LossError,
    ModelError,
    OptimizerError,
    ParameterError,
    WeightError,
)
from onnxtrain.optim import Cosine

R, C = OrtGradientRegressor, OrtGradientClassifier


def onnx_model(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')


#: The mean of the embeddings of the tokens that a mask keeps.
READER = onnx_model(
    """(int64[n, t] input_ids, int64[n, t] attention_mask) => (float[n, 3] logits)
    <float[5, 2] E = {0.1, -0.2, 0.3, 0.2, -0.1, 0, 1, 2, 3, 4}, float[2, 3] W = {1, -1, 0, 2, 0, 1},
     int64[1] last = {2}, int64[1] t = {1}> {
        vectors = Gather(E, input_ids)
        shown = Cast<to = 1>(attention_mask)
        column = Unsqueeze(shown, last)
        kept = Mul(vectors, column)
        sum = ReduceSum<keepdims = 0>(kept, t)
        logits = MatMul(sum, W)
    }"""
)


def of_tokens_and(name):
    """Return a model that also adds the mean of a second input of integers."""
    return onnx_model(
        f"""(int64[n, t] input_ids, int64[n, t] attention_mask, int64[n, t] {name}) => (float[n, 3] logits)
        <float[5, 3] E = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6}}, int64[1] t = {{1}}> {{
            a = Gather(E, input_ids) b = Mul(attention_mask, {name}) c = Cast<to = 1>(b) m = ReduceMean<axes = [1]>(c)
            s = ReduceSum<keepdims = 0>(a, t) logits = Add(s, m)
        }}"""
    )


#: Scores of the next token.
WRITER = onnx_model(
    "(int64[n, t] ids) => (float[n, t, 5] Y) <float[5, 2] E = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4}, "
    "float[2, 5] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0}> { g = Gather(E, ids) Y = MatMul(g, W) }"
)
TAGGER = onnx_model(
    "(float[n, t, 2] X) => (float[n, t, 3] Y) <float[2, 3] W = {1, 2, 3, 4, 5, 6}> { Y = MatMul(X, W) }"
)
#: Series of 7 steps.
SERIES = onnx_model(
    "(float[n, 7, 2] X) => (float[n, 2] Y) <float[14, 2] W = {"
    + ", ".join(map(str, range(28)))
    + "}> { f = Flatten(X) Y = MatMul(f, W) }"
)
PIXELS = onnx_model(
    "(float[n, 3, 8, 8] X) => (float[n, 2] Y) <float[3, 2] W = {1, 2, 3, 4, 5, 6}>"
    "{ p = GlobalAveragePool(X) f = Flatten(p) Y = MatMul(f, W) }"
)


def pixels_of(sides):
    return onnx_model(
        f"(float[n, {sides}] X) => (float[n, 2] Y) <float[{sides[0]}, 2] W = {{{', '.join('1' * 2 * int(sides[0]))}}}>"
        "{ p = GlobalAveragePool(X) f = Flatten(p) Y = MatMul(f, W) }"
    )


BYTES = onnx_model(
    "(uint8[n, 3, 8, 8] X) => (float[n, 1] Y) <float[3, 1] W = {1, 2, 3}>"
    "{ x = Cast<to = 1>(X) p = GlobalAveragePool(x) f = Flatten(p) Y = MatMul(f, W) }"
)
#: Networks for pixels: from 0 to 255, with a mean of 1/2, and from 0 to 1 without a sign of it.
DIVIDED, NORMALIZED, CERTAIN = (
    onnx_model(
        "(float[n, 3, 8, 8] X) => (float[n, 2] Y) "
        f"<float c = {{{c}}}, float m = {{0.5}}, float s = {{0.25}}, float[3, 2] W = {{1, 2, 3, 4, 5, 9}}>"
        f"{{ {scaled} p = GlobalAveragePool(x) f = Flatten(p) Y = MatMul(f, W) }}"
    )
    for c, scaled in [(255, "x = Div(X, c)"), (1, "d = Sub(X, m) x = Div(d, s)"), (1, "x = Relu(X)")]
)
PAIRS = np.arange(20) % 2
SEGMENTS = onnx_model(
    "(float[n, 3, h, w] X) => (float[n, 2, h, w] Y) <float[2, 3, 1, 1] W = {1, 2, 3, 4, 5, 6}> { Y = Conv(X, W) }"
)
SOUNDS = onnx_model(
    "(float[n, t] X) => (float[n, 2] Y) <float[2, 1, 4] K = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] one = {1}>"
    "{ c = Unsqueeze(X, one) d = Conv(c, K) p = GlobalAveragePool(d) Y = Flatten(p) }"
)
#: A convolution of clips with the intercept that PyTorch's exporter writes for Conv3d(bias=False).
CLIPS = onnx_model(
    "(float[n, 1, 2, 2, 2] X) => (float[n, 3] Y) <float[3, 1, 2, 2, 2] K = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"
    "14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24}, int64[1] one = {1}, float zero = {0}>"
    "{ s = Shape<start = 0, end = 1>(K) t = Concat<axis = 0>(s, one) b = Expand(zero, t) c = Conv(X, K, b)"
    " Y = Flatten(c) }"
)
#: An attention whose mask is added to its scores, with large negative numbers where a token does not count.
ATTENTION = onnx_model(
    """(float[n, t, 2] x, float[n, t] mask) => (float[n, t, 2] Y)
    <float[2, 2] W = {1, 2, 3, 4}, int64[1] one = {1}> {
        k = Transpose<perm = [0, 2, 1]>(x) scores = MatMul(x, k) row = Unsqueeze(mask, one)
        masked = Add(scores, row) shares = Softmax(masked) mean = MatMul(shares, x) Y = MatMul(mean, W)
    }"""
)
#: A mask of booleans, and a linear model of integers.
CHOOSER = onnx_model(
    "(float[n, 3] x, bool[n, 3] mask) => (float[n, 3] Y) <float[3, 3] W = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float zero = {0}>"
    "{ kept = Where(mask, x, zero) Y = MatMul(kept, W) }"
)
COUNTS = onnx_model(
    "(int64[n, 2] X) => (float[n, 1] Y) <float[2, 1] W = {1, 2}> { x = Cast<to = 1>(X) Y = MatMul(x, W) }"
)
#: Twelve layers with long names.
DEEP = onnx_model("(float[n, 2] y0) => (float[n, 2] y12) <float[2, 2] W = {1, 2, 3, 4}> { y12 = MatMul(y0, W) }")
QUERIES = [f"model.encoder.a_long_prefix.layer.{i}.query.weight" for i in range(12)]
del DEEP.graph.node[:], DEEP.graph.initializer[:]
DEEP.graph.node.extend(
    onnx.helper.make_node("MatMul", [f"y{i}", name], [f"y{i + 1}"]) for i, name in enumerate(QUERIES)
)
DEEP.graph.initializer.extend(onnx.numpy_helper.from_array(np.eye(2, dtype=np.float32), name) for name in QUERIES)

#: Networks whose predictions are bounded, and one whose last weights scale a bounded value.
BETWEEN, POSITIVE, AFTER = (
    onnx_model(f"(float[n, 2] X) => (float[n, 1] Y) <float[2, 1] W = {{1, 2}}, float[1, 1] V = {{1}}> {{ {nodes} }}")
    for nodes in (
        "z = MatMul(X, W) Y = Sigmoid(z)",
        "z = MatMul(X, W) Y = Relu(z)",
        "z = MatMul(X, W) s = Tanh(z) Y = MatMul(s, V)",
    )
)
LINEAR_ROWS = np.random.default_rng(0).normal(size=(20, 2))
#: Scores of the next token for texts of three tokens.
OF_THREE = onnx_model(
    "(int64[n, 3] ids) => (float[n, 3, 5] Y) <float[5, 2] E = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4}, "
    "float[2, 5] W = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0}> { g = Gather(E, ids) Y = MatMul(g, W) }"
)

TAGS = [["O", "B", "I", -100]] * 20
#: A network whose weight has the name that torch.onnx.export(dynamo=False) gives it.
RENAMED = onnx_model(
    "(float[n, 2] X) => (float[n, 2] Y) <float[2, 2] W = {1, 2, 3, 4}, float[2] b = {0, 1}> { z = MatMul(X, W) Y = Add(z, b) }"
)
RENAMED.graph.initializer[0].name = RENAMED.graph.node[0].input[1] = "onnx::MatMul_12"
RENAMED.graph.initializer[1].name = RENAMED.graph.node[1].input[1] = "fc.bias"
#: A file with an input per column.
COLUMNS = onnx_model(
    "(float[n, 1] age, float[n, 1] rooms) => (float[n, 1] Y) <float[1, 1] V = {1}, float[1, 1] W = {2}>"
    "{ a = MatMul(age, V) b = MatMul(rooms, W) Y = Add(a, b) }"
)
HOUSES = pd.DataFrame({"age": np.arange(20.0), "rooms": np.arange(20.0) % 4})
LINE = onnx_model("(float[n, 2] X) => (float[n, 1] Y) <float[2, 1] W = {1, 2}> { Y = MatMul(X, W) }")

IDS = np.arange(60).reshape(20, 3) % 4 + 1
MASK = np.tile([1, 1, 0], (20, 1))
KINDS = np.arange(20) % 3
TOKENS = {"input_ids": IDS, "attention_mask": MASK}
IMAGES = np.random.default_rng(0).random((20, 3, 8, 8))
FILES = [f"train/img_{i}.jpg" for i in range(20)]
VALUES = np.arange(20.0)
PIXEL_KINDS = (IMAGES[:, 0] > 0.5).astype(int)
STEPS = np.arange(60).reshape(20, 3) % 2


def of_package(name, package="transformers.models", **attributes):
    return type(name, (), {"__module__": package, **attributes})()


def made_with(name, package, **attributes):
    made = of_package(name, package)
    vars(made).update(attributes)
    return made


def forward(input_ids, attention_mask): ...


#: A label for each pixel of an image of any size.
MASKS = onnx_model(
    "(float[n, 3, h, w] X) => (float[n, 2, h, w] Y) <float[2, 3, 1, 1] K = {1, 2, 3, 4, 5, 6}> { Y = Conv(X, K) }"
)

BERT = of_package("Bert", forward=staticmethod(forward), parameters=lambda self: [])

CALLS = [
    (
        lambda: C(READER).fit(pd.DataFrame(IDS), KINDS),
        DataError,
        "but 3 columns with numbers as names. If they are the positions of the tokens, pass {'input_ids': X.to_numpy(), 'at",
    ),
    (
        lambda: C(MASKS, class_axis=1).fit(np.ones((20, 3, 4, 4)), np.arange(80).reshape(20, 2, 2) % 2),
        DataError,
        "but a row of y has shape (2, 2). Resize the labels to it, to the nearest neighbor: a mean of two classes is",
    ),
    (
        lambda: C(READER).fit({"input": IDS, "attention_mask": MASK}, KINDS),
        DataError,
        "X has no column 'input_ids', which is an input of the model. Rename one of its columns: input.",
    ),
    (
        lambda: C(READER, max_iter=1).fit(TOKENS, KINDS).predict(input_ids=IDS, attention_mask=MASK),
        ArgumentTypeError,
        "Pass the inputs of a model as one dictionary, X={'input_ids': ids, 'attention_mask': mask}.",
    ),
    (
        lambda: C(READER).fit({"input_ids": IDS}, KINDS),
        DataError,
        "X has no column 'attention_mask', which is an input of the model. The tokenizer makes it. A mask that keeps all tokens is "
        "numpy.ones_like(X['input_ids']), or inputs={'attention_mask': 1} on the estimator.",
    ),
    *(
        (
            lambda name=name: C(of_tokens_and(name)).fit(TOKENS, KINDS),
            DataError,
            f"X has no column {name!r}, which is an input of the model. {said}",
        )
        for name, said in {
            "token_type_ids": "It is 0 for the tokens of a single text: inputs={'token_type_ids': 0} on the estimator.",
            "position_ids": "It counts the tokens: numpy.broadcast_to(numpy.arange(X['input_ids'].shape[1]), X['input_i",
            "decoder_input_ids": "It is y behind the start token of the decoder, without the last label: numpy.pad(y[:, ",
            "past_key_values_0": "It holds the results of earlier tokens when a text is generated, which training does ",
        }.items()
    ),
    (lambda: C(SEGMENTS).fit(IMAGES, np.ones((20, 64), int)), DataError, "Pass y.reshape(len(y), height, width)."),
    # token ids and masks
    (
        lambda: C(READER).fit(TOKENS | {"input_ids": np.where(MASK, IDS, -100)}, KINDS),
        DataError,
        "X['input_ids'] contains -100 in row 0, but its values select rows of a table of the model, 0 to 4. ONNX would "
        "count it from the end of the table. Pad with the id of the padding token",
    ),
    (
        lambda: C(READER, pad={"input_ids": -1}).fit(
            {"input_ids": [[1], [1, 2]], "attention_mask": [[1], [1, 1]]}, [0, 1]
        ),
        DataError,
        "X['input_ids'] contains -1 in row 0",
    ),
    (
        lambda: C(READER).fit(TOKENS | {"input_ids": IDS + 3}, KINDS),
        DataError,
        "X['input_ids'] contains 5 in row 0, but its values select rows of a table of the model, 0 to 4. Use the tok",
    ),
    (
        lambda: C(WRITER, max_iter=0).fit(IDS, IDS - 1).predict(-IDS),
        DataError,
        "X contains -1 in row 0, but its values select rows",
    ),
    (
        lambda: C(READER).fit(TOKENS | {"attention_mask": np.where(MASK, 0, -10000)}, KINDS),
        DataError,
        "X['attention_mask'] contains -10000, but this input takes integers: 1 for the tokens that count and 0 for "
        "padding. Convert an additive mask: (X['attention_mask'] == 0).astype(int).",
    ),
    (
        lambda: C(READER).fit(TOKENS | {"attention_mask": np.where(MASK, 0, -1e9)}, KINDS),
        DataError,
        "X['attention_mask'] contains -1000000000, but",
    ),
    (
        lambda: C(READER, pad={"attention_mask": 1}).fit(TOKENS, KINDS),
        ParameterError,
        "pad={'attention_mask': 1} lets padding count. Leave it out",
    ),
    (
        lambda: C(READER).fit(TOKENS | {"attention_mask": MASK[:, None, None]}, KINDS),
        DataError,
        "has 4 axes, but the model takes 2. Pass numpy.squeeze(X['attention_mask'], axis=(1, 2)).",
    ),
    (
        lambda: C(READER).fit({name: x.T for name, x in TOKENS.items()}, KINDS),
        DataError,
        "X['input_ids'] has 3 rows, y has 20. X['input_ids'] seems to be transposed. Pass X['input_ids'].T.",
    ),
    (
        lambda: C(READER).fit(pd.DataFrame({"text": FILES}), KINDS),
        DataError,
        "but text. The tokenizer of the model makes it from texts: X = tokenizer(list(texts), padding=True, return_ten",
    ),
    (
        lambda: C(READER, inputs={"attention_mask": MASK}).fit({"input_ids": IDS}, KINDS),
        ParameterError,
        "inputs['attention_mask'] has 20 rows, but inputs= sets values that are the same for all rows. Pass it in X",
    ),
    (
        lambda: C(READER).fit(TOKENS | {"labels": KINDS}),
        DataError,
        "fit(X, y). X contains 'labels'. Take it out: y = X.pop('labels').",
    ),
    (
        lambda: C(READER).fit([{"input_ids": [1], "label": 0}] * 3),
        DataError,
        "X is a list of dictionaries, one per row. Pass the labels, y = [row['label'] for row in X].",
    ),
    (
        lambda: C(READER, max_iter=0).fit(TOKENS, KINDS).predict({name: x[0] for name, x in TOKENS.items()}),
        DataError,
        "X['input_ids'] has 1 axis, but the model takes 2. Pass X['input_ids'][None] for a single row.",
    ),
    (lambda: C(READER).fit("a good film", KINDS), DataError, "A tokenizer makes rows of text."),
    (
        lambda: C(READER).fit(TOKENS, [[0], [0, 1]] * 10),
        DataError,
        "y contains lists of different lengths, from 1 to 2. Convert lists or sets of the labels of a row to an ind",
    ),
    (
        lambda: C(READER).fit(TOKENS | {"attention_mask": None}, KINDS),
        DataError,
        "X['attention_mask'] is None, but the model needs this input. Pass an array; a mask that keeps all tokens is",
    ),
    (
        lambda: C(READER).fit(TOKENS | {"input_ids": ["[1, 2]"] * 20}, KINDS),
        DataError,
        "Convert strings of lists: [ast.literal_eval(text) for text in texts].",
    ),
    # rows of other shapes
    (lambda: C(PIXELS).fit(IMAGES[None], KINDS % 2), DataError, "takes 4. Pass X[0], which has the rows."),
    (
        lambda: C(SOUNDS).fit(np.ones((20, 9, 2)), KINDS % 2),
        DataError,
        "Its shape is (20, 9, 2), and that of a row of the model (None,). Select one entry of an axis, or average over it: X.",
    ),
    (lambda: C(SOUNDS).fit(np.ones((20, 1, 9)), KINDS % 2), DataError, "Pass numpy.squeeze(X, axis=(1,))."),
    (
        lambda: C(SOUNDS).fit(np.full((20, 9), np.nan), KINDS % 2),
        DataError,
        " Leave out rows with NaN, or replace it: numpy.nan_to_num(X).",
    ),
    (
        lambda: C(TAGGER).fit(np.ones((4, 20, 2)), np.zeros((20, 4))),
        DataError,
        "X has 4 rows, y has 20. The rows seem to be on axis 1. Pass numpy.moveaxis(X, 1, 0).",
    ),
    # single rows for a file with an input per column
    *(
        (lambda row=row: R(COLUMNS, max_iter=0).fit(HOUSES, np.arange(20.0)).predict(row), DataError, said)
        for row, said in [
            (
                {"age": 35.0, "rooms": 2},
                "X has a single value for each input, such as 35.0 for 'age'. For a single row, pass {name: [value] for ",
            ),
            (
                HOUSES.iloc[0],
                "got an array of shape (2,). A row of a frame is frame.iloc[[0]], with two pairs of brackets.",
            ),
            (
                [[35.0, 2.0]],
                "If each row has a value per input, in this order, use pandas.DataFrame(X, columns=['age', 'r",
            ),
        ]
    ),
    # names of files
    *(
        (
            lambda X=X: C(PIXELS).fit(X, KINDS % 2),
            DataError,
            "Pass the pixels, in the size and scale of the model, for example numpy.stack([numpy.asarray(PIL.Image.open",
        )
        for X in (
            FILES,
            np.array(FILES),
            [pathlib.Path(file) for file in FILES],
            pd.Series(FILES),
            pd.DataFrame({"path": FILES}),
            {"X": FILES},
        )
    ),
    (
        lambda: C(SOUNDS).fit(["a.wav", "b.wav"], [0, 1]),
        DataError,
        "X contains names of files, such as 'a.wav'. Pass the samples",
    ),
    (
        lambda: C(SOUNDS).fit([(np.ones(9), 16000)] * 2, [0, 1]),
        DataError,
        "A row of X['X'] must be an array, got a tuple of ndarray, int. Pass the array alone.",
    ),
    (
        lambda: C(SOUNDS).fit(np.ones((20, 2)), KINDS % 2),
        DataError,
        "A row is too short for a convolution or a pooling",
    ),
    (
        lambda: C(PIXELS).fit(pd.DataFrame({"img": list(IMAGES)}), KINDS % 2),
        DataError,
        "X has no column 'X', which is an input of the model. Rename its column: {'X': X['img']}.",
    ),
    (
        lambda: C(PIXELS).fit({"X": np.where(IMAGES < 0.5, np.nan, IMAGES)}, KINDS % 2),
        ConvergenceError,
        "It is so before the first step, too. Look for NaN and infinity in X, numpy.isfinite, and in a loss of your",
    ),
    (
        lambda: C(READER, max_iter=0).fit(TOKENS, KINDS).gradient(TOKENS, KINDS),
        DataError,
        "No input is floating-point: input_ids, attention_mask. For the gradient of the embeddings of tokens, export",
    ),
    # sizes and colors of images
    (
        lambda: C(PIXELS).fit(np.ones((20, 3, 9, 9)), KINDS % 2),
        DataError,
        "Resize the images to 8 x 8, or export the model with variable axes for other sizes.",
    ),
    (
        lambda: C(PIXELS).fit([np.ones((3, 8 + i % 2, 8)) for i in range(20)], KINDS % 2),
        DataError,
        "but have different shapes: (3, 8, 8), (3, 9, 8). Resize images to one size.",
    ),
    *(
        (lambda X=X: C(PIXELS, max_iter=0).fit(IMAGES, KINDS % 2).predict(X), DataError, said)
        for X, said in [
            (IMAGES[:, 0], "takes 4. Pass X[:, None].repeat(3, axis=1) for gray images."),
            (IMAGES[:, :1], "takes (3, 8, 8). Pass X.repeat(3, axis=1) for gray images."),
            (np.ones((20, 4, 8, 8)), "Pass X[:, :3], without the alpha channel."),
            (np.ones((8, 8, 3)), "Pass numpy.moveaxis(X, -1, 0)[None] for a single row."),
        ]
    ),
    *(
        (lambda sides=sides: C(pixels_of(sides)).fit(np.ones((20, 192)), KINDS % 2), DataError, said)
        for sides, said in [
            ("3, h, w", "takes 4. Pass the images in their size, X.reshape(-1, 3, height, width)."),
            ("3, h, 8", "takes 4. Pass the images in their size, X.reshape(-1, 3, height, 8)."),
            ("5, h, w", "Its shape is (20, 192), and that of a row of the model (5, None, None)."),
        ]
    ),
    # models
    (
        lambda: C("distilbert-base-uncased").fit(TOKENS, KINDS),
        ModelError,
        "must be exported first: optimum-cli export onnx --model distilbert-base-uncased folder.",
    ),
    (
        lambda: C("google/vit-base").fit(TOKENS, KINDS),
        ModelError,
        "optimum-cli export onnx --model google/vit-base folder",
    ),
    (
        lambda: C("resnet50").fit(TOKENS, KINDS),
        ModelError,
        "A network of torchvision or timm is exported by torch.onnx",
    ),
    (
        lambda: C({"weight": np.ones(3)}).fit(TOKENS, KINDS),
        ParameterError,
        "got dict. Weights have no graph. Load them into their module, and export that with torch.onnx.export.",
    ),
    (
        lambda: C(b"PK\3\4" + bytes(20)).fit(TOKENS, KINDS),
        ModelError,
        "24 bytes cannot be read as an ONNX model. It is a zip archive",
    ),
    (
        lambda: C(of_package("Tokenizer")).fit(["a"], [0]),
        ParameterError,
        "got Tokenizer. It has no weights. Pass the file of an exported model; a tokenizer makes the rows, X = tok",
    ),
    (
        lambda: C(BERT).fit(["a", "b"], [0, 1]),
        ParameterError,
        'X = tokenizer(list(X), padding=True, return_tensors="np")\n    torch.onnx.export(model.eval(), (), "model.onnx",',
    ),
    (
        lambda: C(BERT).fit(TOKENS, KINDS),
        ParameterError,
        'dynamic_shapes={\'input_ids\': {0: "n", 1: "t"}, \'attention_mask\': {0: "n", 1: "t"}})',
    ),
    (
        lambda: C(of_package("Pipe", "transformers.pipelines", model=BERT)).fit(["a", "b"], [0, 1]),
        ParameterError,
        "got Pipe. Export it, and pass the file:\n    model, tokenizer = model.model, model.tokenizer\n    X = tok",
    ),
    (
        lambda: C(type(BERT)).fit(TOKENS, KINDS),
        ParameterError,
        "got the class Bert. Create a network, export it to ONNX",
    ),
    # labels
    (
        lambda: C(READER).fit(TOKENS, np.where(VALUES < 2, -1, KINDS)),
        DataError,
        "y has the label -1, but the model has 3 classes: -1, 0, 1, 2. Leave out rows without a label: known = y != -1",
    ),
    (
        lambda: R(LINE).fit(np.full((20, 2), "a"), VALUES),
        DataError,
        "Encode strings as the numbers that the model was tr",
    ),
    (lambda: C(WRITER).fit(IDS, np.where(IDS == 1, 255, IDS)), DataError, "positions to ignore, set ignore_index=255."),
    (
        lambda: C(OF_THREE).fit(IDS[:, [0, 1, 2, 2]], IDS[:, [0, 1, 2, 2]]),
        DataError,
        "X has 4 features, but the model takes 3. Pad or cut the texts to 3 tokens, or export the model with a variable",
    ),
    (
        lambda: C(OF_THREE).fit(IDS, IDS[:, 1:]),
        DataError,
        "the last position has none: numpy.pad(y, [(0, 0), (0, 1)], con",
    ),
    (
        lambda: C(WRITER).fit(IDS / 2, IDS),
        DataError,
        "X must contain int64 values, got 0.5 in row 0. Values are not rounded or clipped. Token ids and other indices are "
        "integers. To cut off the fractions, pass X.astype(numpy.int64).",
    ),
    (
        lambda: R(BYTES).fit(IMAGES, VALUES),
        DataError,
        "Pixels from 0 to 1 become integers from 0 to 255 by (X * 255).round().astype(numpy.uint8).",
    ),
    *(
        (lambda rows=rows: R(BYTES).fit(rows, VALUES), DataError, "clipped. Pass numbers from 0 to 255.")
        for rows in (np.full((20, 3, 8, 8), -1), np.full((20, 3, 8, 8), -128, np.int8), np.full((20, 3, 8, 8), 256.0))
    ),
    *(
        (
            lambda mask=mask: C(CHOOSER).fit({"x": np.ones((20, 3)), "mask": mask}, KINDS),
            DataError,
            "clipped. Pass 1 for what counts and 0 for the rest, for example X['mask'] > 0.5. Of a mask that is added to "
            "scores, pass X['mask'] == 0.",
        )
        for mask in (MASK / 2, np.where(MASK, 0, -10000), 2 * MASK - 1)
    ),
    (
        lambda: R(COUNTS).fit(np.arange(40).reshape(20, 2) / 7, VALUES),
        DataError,
        "If skl2onnx made the file, the rows of its example were integers. Make it again with "
        "X[:1].astype(numpy.float32), which takes any numbers. To cut off",
    ),
    (
        lambda: C(READER).fit({**TOKENS, "input_ids": np.full((20, 3), np.nan)}, KINDS),
        DataError,
        "got nan in row 0. Values are not rounded or clipped. Token ids and other indices are integers. Fill missing values",
    ),
    (
        lambda: C(PIXELS).fit(scipy.sparse.csr_matrix(IMAGES.reshape(20, -1)), PAIRS),
        DataError,
        "X.toarray().reshape(-1, 3, 8, 8).",
    ),
    (
        lambda: C(READER, batch_axis={"input_ids": 5}).fit(TOKENS, KINDS),
        ParameterError,
        "is not an axis of the input, which has 2 axes. The first is 0.",
    ),
    (
        lambda: C(READER).fit(TOKENS, np.where(VALUES < 2, -100, KINDS)),
        DataError,
        "y has the label -100, but the model has 3 classes: -100, 0, 1, 2. Leave out rows without a label: known =",
    ),
    (
        lambda: C(SEGMENTS).fit(IMAGES, (IMAGES[:, :1] > 0.5) * 1),
        DataError,
        "(the shape of the output). Pass numpy.squeeze(y, axis=1).",
    ),
    (
        lambda: C(SEGMENTS).fit(IMAGES, np.ones((20, 8, 8, 2))),
        DataError,
        "If the last axis of y holds channels, pass numpy.moveaxis(y, -1, 1); if classes, y.argmax(axis=-1).",
    ),
    (
        lambda: C(SEGMENTS).fit(IMAGES, np.ones((20, 8, 8, 3))),
        DataError,
        "(the shape of the output). If y holds colors, one per class, number them: numpy.unique(y.reshape(-1, 3), axis=0,"
        " return_inverse=True)[1].reshape(y.shape[:-1]).",
    ),
    (
        lambda: C(SERIES).fit(np.ones((20, 9, 2)), PAIRS),
        DataError,
        "Axis 1 has length 9 instead of 7. Pass the 7 values that the model was trained on, for example the last, "
        "X[:, -7:], or a model for 9.",
    ),
    (
        lambda: C(SERIES).fit(np.ones((20, 7, 1)), PAIRS),
        DataError,
        "Axis 2 has length 1 instead of 2. Pass the 2 values that the model was trained on, or a model for 1.",
    ),
    (
        lambda: C(SERIES).fit(np.ones((20, 9, 4)), PAIRS),
        DataError,
        "for example the last, X[:, -7:], or a model for 9. For images, resize them to 7 x 2.",
    ),
    (
        lambda: C(WRITER).fit(IDS, IDS[:, 1:]),
        DataError,
        "but a row of y has shape (2,). For the next token as label, the last position has none: numpy.pad(y, [(0, 0),",
    ),
    *(
        (
            lambda y=y: C(TAGGER).fit(np.ones((20, 4, 2)), y),
            DataError,
            "y has the string '-100' among its labels, but ignore_index=-100 is a number; numpy makes strings of a list of ",
        )
        for y in (TAGS, np.array(TAGS))
    ),
    (
        lambda: C(RENAMED, weights_to_train=["fc.weight", "fc.bias"]).fit(IDS[:, :2], KINDS % 2),
        WeightError,
        "gives some weights names of its own, such as 'onnx::MatMul_12'. With dynamo=True and optimize=False, the file has "
        "the names of the module. Known: fc, fc.bias, onnx::MatMul_12.",
    ),
    (
        lambda: C(READER, pad={"input_ids": None}).fit(
            {"input_ids": [[1], [1, 2]], "attention_mask": [[1], [1, 1]]}, [0, 1]
        ),
        ParameterError,
        "got {'input_ids': None}. tokenizer.pad_token_id is None if a tokenizer has no padding token, as that of GPT-2. Pass "
        "tokenizer.eos_token_id; the attention mask hides it.",
    ),
    *(
        (
            lambda model=model: model.fit(IMAGES, [{"boxes": np.ones((2, 4)), "labels": [0, 1]}] * 20),
            DataError,
            "Pass an array with the targets of one key, such as numpy.array([row['boxes'] for row in y]), which have the sam",
        )
        for model in (R(SEGMENTS), C(SEGMENTS), R(PIXELS))
    ),
    (
        lambda: R(LINE, output=["Y", "Z"]).fit(IDS[:, :2], VALUES),
        ParameterError,
        "A fit trains one output; a Concat in th",
    ),
    # weights by the names of PEFT and of regular expressions
    *(
        (lambda wanted=wanted: C(DEEP, weights_to_train=wanted).fit(IDS[:, :2], KINDS % 2), WeightError, said)
        for wanted, said in [
            ("query", "nor a step with one. The pattern '*query*' matches 12."),
            (".*layer.1.query.*", "The pattern '*layer.1.query*' matches 1."),
            (["-query"], "The pattern '-*query*' matches 12."),
            (LoRA(weights=["query"]), "The pattern '*query*' matches 12."),
            ("*keys*", " and 12 others."),
        ]
    ),
    (
        lambda: LoRA(lora_dropout=0.1),
        ArgumentTypeError,
        "LoRA has rank, alpha, weights, besides and merge; there is no d",
    ),
    (lambda: C(READER, head="classifier").fit(TOKENS, KINDS), ParameterError, "'new' replaces the last layer by one"),
    (lambda: trainable_weights(of_package("Linear", "torch.nn")), ParameterError, "Export it, and pass the file:"),
    # names of the Trainer of transformers, optimizers and schedules of others
    *(
        (lambda name=name: C(READER, **{name: 1}), ArgumentTypeError, said)
        for name, said in {
            "lr_scheduler_type": "Did you mean 'learning_rate'?",
            "per_device_train_batch_size": "Did you mean 'batch_size'?",
            "load_best_model_at_end": "Did you mean 'early_stopping'?",
            "eval_dataset": "fit(X, y, X_val=..., y_val=...)",
            "compute_metrics": "Apply a metric of scikit-learn to predictions",
            "output_dir": "Write checkpoints: fit(X, y, checkpoint=path, every=...).",
            "label_smoothing_factor": "loss_params={'label_smoothing': 0.1}.",
            "train_dataset": "Pass the rows to fit: fit(X, y).",
            "gradient_checkpointing": "accumulate=... with a smaller batch_size saves memory.",
            "logging_steps": "fit(X, y, callback=...), which is called with the losses of each epoch.",
        }.items()
    ),
    (
        lambda: C(READER, solver=of_package("AdamW", "torch.optim.adamw")).fit(TOKENS, KINDS),
        OptimizerError,
        "got AdamW of torch. Pass solver='adamw', or onnxtrain.optim.AdamW(...) for its parameters.",
    ),
    (
        lambda: C(READER, solver=type(of_package("Adam", "keras.optimizers"))).fit(TOKENS, KINDS),
        OptimizerError,
        "got Adam of keras. Pass solver='adam'",
    ),
    *(
        (lambda solver=solver: C(READER, solver=solver).fit(TOKENS, KINDS), OptimizerError, said)
        for solver, said in [
            (
                made_with("SGD", "torch.optim.sgd", defaults={"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}),
                "got SGD of torch. Pass solver=onnxtrain.optim.SGD(momentum=0.9), learning_rate=0.02, l2=0.05.",
            ),
            (
                made_with("Adam", "torch.optim.adam", defaults={"lr": 0.003, "betas": (0.8, 0.99), "eps": 1e-6}),
                "Pass solver=onnxtrain.optim.Adam(epsilon=1e-06, beta_1=0.8, beta_2=0.99), learning_rate=0.003.",
            ),
            (
                made_with(
                    "RMSprop", "keras.src", get_config=lambda: {"learning_rate": 0.05000000074505806, "rho": 0.8}
                ),
                "Pass solver=onnxtrain.optim.RMSprop(alpha=0.8), learning_rate=0.05.",
            ),
            (
                made_with("SGD", "keras.src", get_config=lambda: {"learning_rate": 0.1, "weight_decay": 0.1}),
                "Pass solver='sgd', learning_rate=0.1, or onnxtrain.optim.SGD(...) for its parameters.",
            ),
            (
                made_with("GradientTransformation", "optax._src.base"),
                "got one of optax, which does not tell its parameters. Pass its name and its rate, such as solver='adam', le",
            ),
        ]
    ),
    *(
        (lambda loss=loss: R(READER, loss=loss).fit(TOKENS, KINDS), LossError, said)
        for loss, said in [
            (made_with("HuberLoss", "torch.nn.modules.loss", delta=2.0), "loss='huber', loss_params={'delta': 2.0}."),
            (made_with("HuberLoss", "torch.nn.modules.loss", delta=1.0), "of torch. Pass loss='huber'."),
            (
                made_with("SmoothL1Loss", "torch.nn.modules.loss", beta=0.5),
                "Pass loss='huber', loss_params={'delta': 0.5}, which is 0.5 times this loss.",
            ),
            (
                made_with("Huber", "keras.src.losses", get_config=dict, _fn_kwargs={"delta": 2.0}),
                "of keras. Pass loss='huber', loss_params={'delta': 2.0}.",
            ),
        ]
    ),
    (
        lambda: C(READER).fit(TOKENS, KINDS, callback=of_package("EarlyStoppingCallback", "transformers")),
        ParameterError,
        "Set early_stopping=True and n_iter_no_change, parameters of the estimator.",
    ),
    (lambda: C(READER, learning_rate="linear").fit(TOKENS, KINDS), OptimizerError, "Did you mean 'cosine'?"),
    (lambda: Cosine(2e-5, warmup=100), OptimizerError, "got 100. It is the share of the steps: warmup=0.1 is a tenth."),
    # losses, rules and passes of one's own
    (
        lambda: add_loss_output(LINE, l2=0.1),
        LossError,
        "has no parameter 'l2'. Known: none. It is a parameter of the estimators; add_loss_output takes it by the name",
    ),
    (
        lambda: R(
            onnx_model("(float[n, 2] X) => (float[n, 1] y) <float[2, 1] W = {1, 2}> { a = MatMul(X, W) y = Round(a) }")
        ).fit(IDS[:, :2], VALUES),
        WeightError,
        "The output 'y' depends on weights only through Round, whose derivative is zero. Add a layer to train with head='new'.",
    ),
    (
        lambda: R(
            onnx.parser.parse_model(
                """<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]> g (float[n, 2] X) => (float[n, 1] y)
                <float[2, 1] W = {1, 2}> { a = MatMul(X, W) y = my.ops.MyRelu(a) }"""
            )
        ).fit(IDS[:, :2], VALUES),
        ModelError,
        "my.ops:MyRelu(-1) is not a registered function/op",
    ),
    (
        lambda: R(LINE, max_iter=0).fit(IDS[:, :2], VALUES).export_training_step("step.onnx"),
        ParameterError,
        "folder must be the path of a folder for several files, got 'step.onnx'.",
    ),
    (
        lambda: R(LINE, loss=lambda op, t, p: op.Square(op.Sub(p, t))).fit(IDS[:, :2], VALUES),
        ModelError,
        "ONNX has no operator 'Square'. Use op.Mul(x, x). ",
    ),
    (
        lambda: R(LINE, loss=lambda op, t, p: op.abs(op.Sub(p, t))).fit(IDS[:, :2], VALUES),
        ModelError,
        "ONNX has no operator 'abs'. Did you mean 'Abs'?",
    ),
    (
        lambda: OrtGradientForwardBackward(LINE).new_instance().forward(IMAGES, IMAGES, IMAGES, IMAGES),
        ArgumentTypeError,
        "forward: too many positional arguments. Its arguments are inputs, training, forward_outputs_cache.",
    ),
    (
        lambda: OrtGradientForwardBackward(LINE).new_instance().forward([np.float32([[1], [2]]), np.float32([[1, 2]])]),
        DataError,
        "'X' must have shape ('n', 2), got (2, 1). The order is X, W.",
    ),
]


@pytest.mark.parametrize("call, error, message", CALLS, ids=[row[2][:60] for row in CALLS])
def test_the_answer_says_what_was_found_and_what_to_do(call, error, message):
    with pytest.raises(error) as e:
        call()
    assert message in str(e.value)
    assert "np." not in str(e.value).replace("PIL", "")


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: C(READER, max_iter=0).fit(
                TOKENS | {"attention_mask": np.tile([0, 1, 0], (20, 1)) * (KINDS > 0)[:, None]}, KINDS
            ),
            "X['attention_mask'] is 0 everywhere in row 0, which masks the whole row. A mask of integers has 1",
        ),
        (
            lambda: C(READER, max_iter=0).fit({"input_ids": MASK, "attention_mask": IDS}, KINDS),
            "X['attention_mask'] contains 4, but a mask has 1 for the tokens that count and 0 for padding. It may be swa",
        ),
        (
            lambda: C(WRITER, max_iter=0).fit(IDS, IDS),
            "y has the token ids of X as labels, so that each token is predicted from itself.",
        ),
        (
            lambda: C(TAGGER, max_iter=0).fit(
                np.ones((20, 4, 2)), np.eye(3, dtype=int)[np.arange(80).reshape(20, 4) % 3]
            ),
            "y has exactly one 1 along its last axis, but the 3 entries are trained as independent labels.",
        ),
        (
            lambda: C(SEGMENTS, max_iter=0).fit(IMAGES, np.moveaxis(np.eye(2, dtype=int)[PIXEL_KINDS], -1, 1)),
            "y has exactly one 1 along axis 1, but the 2 entries are trained as independent labels. If they are classes "
            "that exclude each other, pass y.argmax(axis=1).",
        ),
        (
            lambda: C(ATTENTION, max_iter=0).fit({"x": np.ones((20, 3, 2)), "mask": MASK}, STEPS),
            "X['mask'] contains only 0 and 1, but the model adds this mask to the scores of its attention, where 0 keeps "
            "a token and a large negative number hides it. Convert it: numpy.where(X['mask'], 0.0, -10000.0).",
        ),
        (
            lambda: C(DIVIDED, output_is="scores", max_iter=0).fit(IMAGES, PAIRS),
            "The model shifts and scales its input 'X' as if its values were up to about 255, but those of X are up to "
            "1. For pixels from 0 to 1, pass X * 255; if X was scaled, pass the rows as they were before.",
        ),
        (
            lambda: C(NORMALIZED, max_iter=0).fit(255 * IMAGES, PAIRS),
            "as if its values were up to about 1, but those of X are up to 255. Scale X as in the training of the model, "
            "for example X / 255 for pixels from 0 to 255.",
        ),
        (
            lambda: C(CERTAIN, max_iter=0).fit(255 * IMAGES, PAIRS),
            "The model is certain of a class in most rows, with scores that differ by ",
        ),
        (
            lambda: R(BETWEEN, max_iter=1).fit(LINEAR_ROWS, 10 * VALUES),
            "y is from 0 to 190, but the output 'Y' of the model is always from 0 to 1, so it cannot predict 95% of them.",
        ),
        (
            lambda: R(POSITIVE, max_iter=1).fit(LINEAR_ROWS, VALUES - 10),
            "the output 'Y' of the model is always from 0 to inf, so it cannot predict 50% of them. Pass a model without "
            "its last activation, or scaled targets, such as y - y.min().",
        ),
        (
            lambda: C(WRITER, max_iter=0).fit(IDS, np.array([0, 1, 2, 3, 255] * 12).reshape(20, 3)),
            "y has the label 255, which is trained as a class. If it marks positions that do not count, set ignore_index=255",
        ),
    ],
    ids=[
        "mask",
        "swapped",
        "tokens",
        "columns",
        "channels",
        "added",
        "divided",
        "normalized",
        "certain",
        "sigmoid",
        "relu",
        "ignored",
    ],
)
def test_what_is_probably_meant_otherwise_is_warned_of(call, message):
    with pytest.warns(UserWarning, match=re.escape(message)):
        call()


def test_an_intercept_of_two_axes_has_a_remedy():
    session = onnxruntime.InferenceSession(CLIPS.SerializeToString(), providers=["CPUExecutionProvider"])
    clips = np.ones((20, 1, 2, 2, 2), np.float32)
    try:
        session.run(None, {"X": clips})
    except Exception:  # onnxruntime's own class
        message = (
            "nn.Conv3d(..., bias=False). Use dynamo=False, do_constant_folding=False, or give each such layer zeros"
        )
        with pytest.raises(DataError, match=re.escape(message)):
            C(CLIPS).fit(clips, KINDS)
    else:
        pytest.skip("this onnxruntime takes the first column of such an intercept")


def test_targets_that_a_model_can_predict_are_not_warned_of():
    R(BETWEEN, max_iter=1).fit(LINEAR_ROWS, VALUES / 19)
    R(AFTER, max_iter=1).fit(LINEAR_ROWS, 10 * VALUES)  # the weights after Tanh are trained


def test_what_is_meant_is_not_warned_of():
    masks = np.where(VALUES[:, None] == 0, 0, [1, 1, 1])  # a row without tokens
    C(READER, max_iter=0).fit(TOKENS | {"attention_mask": masks}, KINDS)
    C(WRITER, max_iter=0).fit(IDS, np.where(np.arange(3) == 2, -100, np.roll(IDS, -1, axis=1)))
    C(READER, inputs={"attention_mask": 1}, max_iter=0).fit(IDS, KINDS)
    C(ATTENTION, max_iter=0).fit({"x": np.ones((20, 3, 2)), "mask": np.where(MASK, 0, -1e4)}, STEPS)
    C(ATTENTION, max_iter=0).fit({"x": np.ones((20, 3, 2)), "mask": np.zeros((20, 3))}, STEPS)
    C(DIVIDED, max_iter=0).fit(255 * IMAGES, PAIRS)
    C(NORMALIZED, max_iter=0).fit(IMAGES, PAIRS)
    C(CERTAIN, max_iter=0).fit(IMAGES, PAIRS)


@pytest.mark.parametrize("kind", ["Less", "Equal"])
def test_an_index_that_the_model_compares_may_be_negative(kind):
    """A model may give -1 a meaning of its own; a comparison with the id of a padding token does not."""
    model = """(int64[n] ids) => (float[n, 2] Y)
        <float[3, 2] E = {1, 2, 3, 4, 5, 6}, int64 pad = {%d}, float zero = {0}, int64[1] last = {1}>
        { g = Gather(E, ids) none = %s(ids, pad) none2 = Unsqueeze(none, last) Y = Where(none2, zero, g) }"""
    assert lengths_of_tables(onnx_model(model % (-1 if kind == "Equal" else 0, kind))) == {}
    assert lengths_of_tables(onnx_model(model % (0, "Equal"))) == {"ids": 3}


@pytest.mark.parametrize("whole, length", [("", 3), ("h = Gather(F, ids)", 2)])
def test_columns_select_rows_of_tables_of_their_own(whole, length):
    model = """(int64[n, 2] ids) => (float[n, 1, 2] Y) <float[3, 2] E = {1, 2, 3, 4, 5, 6}, float[2, 2] F = {1, 2, 3, 4},
        int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}> { a = Slice(ids, zero, one, one)
        b = Slice(ids, one, two, one) f = Gather(E, a) g = Gather(F, b) Y = Add(f, g) %s }"""
    assert lengths_of_tables(onnx_model(model % whole)) == {"ids": length}


def test_a_table_is_found_behind_casts_and_in_fused_operators():
    halves = onnx_model(
        "(int32[n, 1] ids) => (float[n, 2] Y) <float[2, 9] E = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}>"
        "{ i = Cast<to = 7>(ids) j = Reshape(i, k) k = Constant<value = int64[1] {-1}>() F = Identity(E)"
        "  g = Gather<axis = 1>(F, j) Y = Transpose(g) }"
    )
    assert lengths_of_tables(halves) == {"ids": 9}
    node = onnx.helper.make_node(
        "EmbedLayerNormalization", ["ids", "", "words", "places"], ["y", "m"], domain="com.microsoft"
    )
    ids = onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT32, ["n", "t"])
    words, places = (
        onnx.numpy_helper.from_array(np.ones((n, 4), np.float32), s) for n, s in [(7, "words"), (5, "places")]
    )
    fused = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [ids], [], [words, places]))
    assert lengths_of_tables(fused) == {"ids": 7}


def test_a_table_is_known_after_load(tmp_path):
    save(C(READER, max_iter=0).fit(TOKENS, KINDS), tmp_path / "reader.onnx")
    again = load(tmp_path / "reader.onnx")
    again.predict(Inputs(**TOKENS))
    with pytest.raises(DataError, match="contains -1 in row 0, but its values select rows"):
        again.predict(Inputs(input_ids=-IDS, attention_mask=MASK))


def test_indices_are_checked_in_a_memory_map(tmp_path):
    stored = np.memmap(tmp_path / "ids", np.int64, "w+", shape=IDS.shape)
    stored[:] = IDS
    tuned = C(WRITER, max_iter=0).fit(stored, IDS - 1)
    stored[7, 1] = -1
    with pytest.raises(DataError, match="X contains -1 in row 7"):
        tuned.predict(stored)


@pytest.mark.parametrize(
    "files, message",
    [
        (["model.onnx"], "model.onnx'."),
        (["saved_model.pb"], "python -m tf2onnx.convert --saved-model "),
        (["config.json", "model.safetensors"], "optimum-cli export onnx --model "),
        ([], "Pass the path of an ONNX file."),
    ],
)
def test_a_folder_is_answered_with_what_it_holds(files, message, tmp_path):
    for name in files:
        (tmp_path / name).write_bytes(b"0")
    with pytest.raises(ModelError, match="is a folder") as e:
        R(tmp_path).fit(IDS, VALUES)
    assert message in str(e.value)
    if files == ["saved_model.pb"]:
        with pytest.raises(ModelError, match=r"is not an ONNX model. It holds a SavedModel of TensorFlow"):
            R(tmp_path / "saved_model.pb").fit(IDS, VALUES)


def test_the_weights_beside_a_model_are_told_apart(tmp_path):
    for name in ("model.onnx", "model.onnx.data"):
        (tmp_path / name).write_bytes(b"0")
    with pytest.raises(ModelError, match=r"model.onnx.data' holds the weights of a model. Pass '.*model.onnx'."):
        R(tmp_path / "model.onnx.data").fit(IDS, VALUES)


@pytest.mark.parametrize("name", ["modle.onnx", "model", "model.onx"])
def test_a_path_with_a_mistake_is_answered_with_the_file_beside_it(name, tmp_path, monkeypatch):
    onnx.save(LINE, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / name, name):
        with pytest.raises(ModelError, match=r"There is no file .* Did you mean '.*model.onnx'\?$"):
            R(path).fit(IDS, VALUES)


@pytest.mark.parametrize(
    "nodes, with_axes",
    [
        ("z = MatMul(x, W) Y = Squeeze(z)", "z = MatMul(x, W) Y = Squeeze(z, k)"),
        ("z = MatMul(x, W) s = Squeeze(z, k) Y = Squeeze(s)", "z = MatMul(x, W) Y = Squeeze(z, k)"),
    ],
)
def test_a_squeeze_without_axes_keeps_the_axis_of_a_single_row(nodes, with_axes):
    """The last batch of 21 rows has one row, whose axis ``squeeze()`` of PyTorch would remove, too."""
    rows, kinds = np.random.default_rng(0).normal(size=(21, 1, 2)), np.arange(21) % 2
    text = "(float[n, 1, 2] x) => (float[n, 2] Y) <float[2, 2] W = {{1, 2, 3, -4}}, int64[1] k = {{1}}> {{ {} }}"
    squeezed, expected = (
        C(onnx_model(text.format(written)), batch_size=10, max_iter=2, random_state=0).fit(rows, kinds)
        for written in (nodes, with_axes)
    )
    assert squeezed.loss_curve_ == expected.loss_curve_
    np.testing.assert_array_equal(squeezed.predict_proba(rows[:1]), expected.predict_proba(rows[:1]))


def test_a_squeeze_of_two_open_axes_stays():
    """The second may always have the length 1, as in files whose exporter wrote no lengths."""
    open_axes = onnx_model(
        "(float[n, m, 2] x) => (float[a, b] Y) <float[2, 2] W = {1, 2, 3, -4}> { z = MatMul(x, W) Y = Squeeze(z) }"
    )
    rows, kinds = np.random.default_rng(0).normal(size=(20, 1, 2)), np.arange(20) % 2
    assert C(open_axes, max_iter=1).fit(rows, kinds).predict_proba(rows).shape == (20, 2)


def test_a_map_is_named_as_the_output_to_train():
    """The name that ``session.get_outputs()`` shows for the probabilities of a file with a ZipMap."""
    rows, kinds = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 3
    file = to_onnx(LogisticRegression().fit(rows, kinds), rows[:1].astype(np.float32))
    name = file.graph.output[1].name
    assert file.graph.output[1].type.WhichOneof("value") == "sequence_type"
    by_default, by_name = (C(file, max_iter=2, random_state=0, output=o).fit(rows, kinds) for o in (None, name))
    assert by_name.loss_curve_ == by_default.loss_curve_


def test_scores_of_one_position_per_row_are_trained_as_the_message_says():
    """The output of SqueezeNet, of shape (n, K, 1, 1)."""
    pooled = onnx_model(
        "(float[n, 3, 8, 8] X) => (float[n, 2, 1, 1] Y) <float[2, 3, 1, 1] W = {1, 2, 3, 4, 5, 6}>"
        "{ c = Conv(X, W) Y = GlobalAveragePool(c) }"
    )
    with pytest.raises(DataError, match=re.escape("have the length 1, pass y.reshape(-1, 1, 1).")):
        C(pooled).fit(IMAGES, PAIRS)
    assert C(pooled, max_iter=1).fit(IMAGES, PAIRS.reshape(-1, 1, 1)).predict(IMAGES).shape == (20, 1, 1)


def test_an_input_of_token_types_is_fixed_as_the_message_says():
    model = C(of_tokens_and("token_type_ids"), inputs={"token_type_ids": 0}, max_iter=1)
    assert model.fit(TOKENS, KINDS).predict(TOKENS).shape == (20,)


def test_a_single_row_of_a_file_with_an_input_per_column_as_the_messages_say():
    X, model = {"age": 35.0, "rooms": 2.0}, R(COLUMNS, max_iter=0).fit(HOUSES, VALUES)
    for row in (
        {name: [value] for name, value in X.items()},
        pd.DataFrame([[35.0, 2.0]], columns=["age", "rooms"]),
        pd.DataFrame([X] * 2).iloc[[0]],
    ):
        assert model.predict(row).tolist() == [39.0]


def test_tags_beside_a_number_to_ignore_as_the_message_says():
    rows = np.ones((20, 4, 2))
    for y, ignored in [(TAGS, "-100"), (np.array(TAGS, object), -100)]:
        assert C(TAGGER, ignore_index=ignored, max_iter=1).fit(rows, y).classes_.tolist() == ["B", "I", "O"]


def loss_of(package, name, usual, options=None):
    """Return an object as a class of losses of PyTorch (options are attributes) or Keras (a configuration) makes it."""

    class Made:
        __module__ = package

        def __init__(self, **changed):
            vars(self).update(usual | changed)

        if package == "keras.losses":

            def get_config(self):
                return {name: value for name, value in vars(self).items() if name[0] != "_"}

    Made.__name__ = name
    return Made(**(options or {}))


@pytest.mark.parametrize(
    "found, code",
    [
        (loss_of("torch.nn", "SmoothL1Loss", {"beta": 1.0}), "Pass loss='huber'."),
        (
            loss_of("torch.nn", "SmoothL1Loss", {"beta": 1.0}, {"beta": 2.0}),
            "loss_params={'delta': 2.0}, which is 2.0 times this loss.",
        ),
        (loss_of("keras.losses", "Huber", {"delta": 1.0}, {"delta": 3.0}), "'huber', loss_params={'delta': 3.0}."),
        (
            loss_of("torch.nn", "CrossEntropyLoss", {"ignore_index": -100}, {"ignore_index": 0}),
            "Pass loss='log'. For its ignore_index, set ignore_index of OrtGradientClassifier.",
        ),
        (
            loss_of("torch.nn", "MSELoss", {"reduction": "mean"}, {"reduction": "sum"}),
            "Pass loss='squared_error'. It has no reduction='sum'.",
        ),
    ],
)
def test_the_options_of_a_loss_of_another_library_are_named(found, code):
    with pytest.raises(LossError, match=f"{re.escape(code)}$"):
        C(READER, loss=found).fit(TOKENS, KINDS)


def test_the_weights_of_a_loss_of_pytorch_are_named():
    torch = pytest.importorskip("torch")
    found = torch.nn.CrossEntropyLoss(weight=torch.ones(2), label_smoothing=0.1)
    code = "loss_params={'label_smoothing': 0.1}. For its weight, set class_weight of OrtGradientClassifier."
    with pytest.raises(LossError, match=f"{re.escape(code)}$"):
        C(READER, loss=found).fit(TOKENS, KINDS)


def test_the_outputs_of_a_body_may_be_hidden_states():
    rng = np.random.default_rng(0)
    body = onnx_model(
        """(float[N, 2] x) => (float[N, 4] last_hidden_state, float[N, 4] pooler_output)
        <float[2, 4] V = {1, 0, 0, 1, 0, 1, 1, 0}>
        { last_hidden_state = MatMul(x, V) pooler_output = Tanh(last_hidden_state) }"""
    )
    rows, classes = rng.normal(size=(20, 2)).astype(np.float32), np.arange(20) % 2
    with pytest.raises(
        ModelError, match=r"output='pooler_output'\. If they are hidden states, .*set head='new', too\."
    ):
        C(body).fit(rows, classes)
    tuned = C(body, output="pooler_output", head="new", max_iter=1, random_state=0).fit(rows, classes)
    assert set(tuned.predict(rows)) <= {0, 1}


def test_a_layer_for_a_file_without_weights_as_the_message_adds_it():
    model = onnx_model("(float[n, 2] X) => (float[n, 2] y) { y = Relu(X) }")
    with pytest.raises(WeightError, match=r"Add a layer to train with head='new', features='y'\.") as raised:
        R(model).fit(IDS[:, :2], VALUES)
    assert "output=" not in str(raised.value)  # there is no other
    two = onnx_model(
        "(float[n, 2] X) => (float[n, 2] y, float[n, 1] z) <float[2, 1] W = {1, 2}> { y = Relu(X) z = MatMul(X, W) }"
    )
    with pytest.raises(WeightError, match=r"Train another output with output='z', or add a layer to train with head="):
        R(two, output="y").fit(IDS[:, :2], VALUES)
    assert "head.weight" in R(model, head="new", features="y", max_iter=1).fit(IDS[:, :2], VALUES).weights_


@pytest.mark.parametrize("broken", ["W", "V"])
def test_nan_in_a_file_is_found_in_its_weight(broken):
    model = onnx_model(
        "(float[n, 2] X) => (float[n, 1] y) <float[2, 2] W = {1, 2, 3, 4}, float[2, 1] V = {1, 2}> "
        "{ a = MatMul(X, W) b = Relu(a) y = MatMul(b, V) }"
    )
    for weight in model.graph.initializer:
        if weight.name == broken:
            values = np.where(np.arange(np.prod(weight.dims)) == 1, np.nan, 1).astype(np.float32)
            weight.CopyFrom(onnx.numpy_helper.from_array(values.reshape(weight.dims), broken))
    with pytest.raises(
        ConvergenceError, match=rf"{broken} is so before the first step.*one from before its training fail"
    ):
        R(model, max_iter=1).fit(IDS[:, :2], VALUES)
