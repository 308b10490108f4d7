"""What cannot be converted is named by its path in the pipeline, with the reason; skl2onnx's own error is the cause."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.ensemble import BaggingRegressor, RandomForestRegressor, VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, StandardScaler

from onnxtrain import OrtGradientRegressor
from onnxtrain.convert import convert
from onnxtrain.errors import ConversionError

X, Y = load_diabetes(return_X_y=True)
SKETCHES = ColumnTransformer([("num", make_pipeline(SimpleImputer(), PolynomialCountSketch()), [0, 1])])
UNION = FeatureUnion([("kept", "passthrough"), ("products", PolynomialCountSketch())])
BINS = ColumnTransformer([("num", KBinsDiscretizer(4, strategy="uniform"), [2, 3])])


class Unknown(Ridge):
    """A class of its own, which has no converter, and predicts otherwise than its parent."""

    def predict(self, X):
        return super().predict(X) + 1


class Doubled(StandardScaler):
    """A class of its own, which has no converter, and transforms otherwise than its parent."""

    def transform(self, X):
        return 2 * super().transform(X)


#: Model, the path of the step, words of the reason.
MODELS = {
    "alone": (
        PolynomialCountSketch(),
        "PolynomialCountSketch",
        "no converter for PolynomialCountSketch. Register one with onnxtrain.converter",
    ),
    "columns": (
        make_pipeline(SKETCHES, Ridge()),
        "pipeline.columntransformer.num.polynomialcountsketch",
        "no converter for PolynomialCountSketch. Register one with onnxtrain.converter",
    ),
    "union": (
        make_pipeline(UNION, Ridge()),
        "pipeline.featureunion.products",
        "no converter for PolynomialCountSketch",
    ),
    "vote": (
        VotingRegressor([("kernel", Unknown()), ("ridge", Ridge())]),
        "votingregressor.named_estimators.kernel",
        "no converter for Unknown",
    ),
    "function": (
        make_pipeline(StandardScaler(), FunctionTransformer(np.cbrt), Ridge()),
        "pipeline.functiontransformer",
        "only those of numpy with an operator are converted, such as numpy.log1p",
    ),
    "in front of members": (
        make_pipeline(Doubled(), BaggingRegressor(Ridge(), 2)),
        "pipeline.doubled",
        "Register one with onnxtrain.converter. See .*Doubled and",
    ),
    "in front of trees": (make_pipeline(Doubled(), RandomForestRegressor(2)), "pipeline.doubled", "See .*Doubled and"),
    "in members": (
        make_pipeline(StandardScaler(), BaggingRegressor(make_pipeline(Doubled(), Ridge()), 2)),
        "pipeline.baggingregressor.estimator_.doubled",
        r"Train its member: BaggingRegressor\(OrtGradientRegressor\(Ridge\(...\)\), ...\)",
    ),
    "option": (make_pipeline(BINS, Ridge()), "pipeline.columntransformer.num", "Set encode='onehot-dense'"),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_step_is_named_by_its_path(name):
    model, path, why = MODELS[name]
    model.fit(X, Y)
    with pytest.raises(ConversionError, match=why) as e:
        convert(model, X)
    assert str(e.value).startswith(f"{path} cannot be converted to ONNX: ")
    assert not {"issue", "isue", "sklearn-onnx/issues"} & set(str(e.value).split())
    assert "raise an" not in str(e.value)
    assert e.value.__cause__ is not None
    assert not isinstance(e.value.__cause__, ConversionError)


@pytest.mark.parametrize(
    "model, path",
    [
        (make_pipeline(PolynomialCountSketch(), Unknown()), "pipeline.unknown: Unknown"),
        (make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), Unknown())), "pipeline.pipeline.unknown"),
    ],
)
def test_so_is_the_last_step_of_a_pipeline_that_is_split(model, path):
    with pytest.raises(ConversionError, match="no converter for Unknown") as e:
        OrtGradientRegressor(model.fit(X, Y)).fit(X, Y)
    assert str(e.value).startswith(path)
    assert e.value.__cause__ is not None
    assert not isinstance(e.value.__cause__, ConversionError)


def test_so_is_a_step_of_a_calibrated_classifier():
    model = CalibratedClassifierCV(make_pipeline(Doubled(), LogisticRegression()), cv=2)
    with pytest.raises(ConversionError, match="no converter for Doubled") as e:
        convert(model.fit(X, np.median(Y) < Y), X)
    assert str(e.value).startswith("calibratedclassifiercv.calibrated_classifiers.0.doubled cannot be converted")


def test_neighbours_of_wide_sparse_rows():
    rows = scipy.sparse.eye(3000, 200_000, format="csr")
    with pytest.raises(ConversionError, match="As dense rows, they take 2 GiB.* with TruncatedSVD"):
        convert(KNeighborsRegressor().fit(rows, np.arange(3000.0)), rows[:5])
