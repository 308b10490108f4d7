"""One or several fitted estimators of every scikit-learn class that skl2onnx supports.

``ZOO`` maps ``"Class"`` or ``"Class: variant"`` to a function that returns a fitted
estimator and the rows to predict.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from skl2onnx import sklapi
from sklearn import (
    calibration,
    cluster,
    compose,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    dummy,
    ensemble,
    feature_extraction,
    feature_selection,
    gaussian_process,
    impute,
    isotonic,
    kernel_ridge,
    linear_model,
    mixture,
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    random_projection,
    semi_supervised,
    svm,
    tree,
)
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification, make_regression
from sklearn.gaussian_process import kernels

ZOO: dict[str, Callable[[], tuple[Any, Any]]] = {}

N = 60


@functools.cache
def data(name: str) -> tuple[Any, Any]:
    """Return X and y of one kind, small and exact in float32."""
    rng = np.random.default_rng(0)
    iris, species = (a[:: 150 // 75] for a in load_iris(return_X_y=True))
    X, y = make_regression(N, 5, n_targets=2, noise=5.0, random_state=0)
    Xb, yb = make_classification(N, 5, n_informative=3, random_state=1)
    X, Xb, iris = (a.astype(np.float32).astype(np.float64) for a in (X, Xb, iris))
    y = y / 50
    missing = iris.copy()
    missing[rng.random(iris.shape) < 0.1] = np.nan
    category = rng.integers(0, 3, (N, 3))
    return {
        "reg": (X, y[:, 0]),
        "regpos": (X, np.exp(y[:, 0] / 2)),
        "regmulti": (X, y),
        "bin": (Xb, yb),
        "binstr": (Xb, np.array(["no", "yes"])[yb]),
        "iris": (iris, species),
        "irisstr": (iris, np.array(["a", "b", "c"])[species]),
        "binpos": (np.abs(Xb), yb),
        "clfmulti": (iris, np.stack([species, (species > 0) * 1], axis=1)),
        "nan": (missing, species),
        "cat": (category.astype(np.float64), (category[:, 0] + rng.integers(0, 2, N)) % 3),
        "catbin": (category.astype(np.float64), rng.integers(0, 2, N)),
        "catint": (category, yb),
        "kern": (X @ X.T, y[:, 0]),
        "labels": (iris, np.stack([species == 0, (species > 0) & (iris[:, 1] > 2.8)], axis=1).astype(int)),
        "skewed": (iris[20:], species[20:]),
        "one": (X[:, :1], y[:, 0]),
        "label": (species, None),
        "text": (["a cat", "a dog", "the dog and the cat"] * 9, None),
        "dict": ([{"a": 1.0, "b": 2.0}, {"a": 3.0}] * 9, None),
    }[name]


def _fit(estimator: Any, kind: str) -> tuple[Any, Any]:
    X, y = data(kind)
    estimator = clone(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X) if y is None else estimator.fit(X, y)
    if hasattr(estimator, "_fit_X") and not hasattr(estimator, "_y"):  # any of several equal neighbors may be chosen
        X = (X + np.random.default_rng(1).normal(scale=0.05, size=X.shape)).astype(np.float32).astype(np.float64)
    return estimator, X


def rows(name: str) -> tuple[Any, Any]:
    """Return the training data X and y of an estimator in ``ZOO``."""
    return data(ZOO[name].args[1])  # type: ignore[attr-defined]


def add(estimator: Any, *kinds: str, variant: str = "") -> None:
    """Add an estimator to ``ZOO`` for each kind of data."""
    for kind in kinds:
        words = " ".join(w for w in (variant, kind if len(kinds) > 1 else "") if w)
        name = type(estimator).__name__ + (f": {words}" if words else "")
        if name in ZOO:
            raise ValueError(f"{name} is in the zoo already.")
        ZOO[name] = functools.partial(_fit, estimator, kind)


def _linear() -> None:
    lm = linear_model
    for name in [
        "ARDRegression",
        "BayesianRidge",
        "ElasticNet",
        "ElasticNetCV",
        "HuberRegressor",
        "Lars",
        "LarsCV",
        "Lasso",
        "LassoCV",
        "LassoLars",
        "LassoLarsCV",
        "LassoLarsIC",
        "LinearRegression",
        "OrthogonalMatchingPursuit",
        "OrthogonalMatchingPursuitCV",
        "Ridge",
        "RidgeCV",
        "SGDRegressor",
        "PassiveAggressiveRegressor",
        "QuantileRegressor",
        "RANSACRegressor",
        "TheilSenRegressor",
    ]:
        add(getattr(lm, name)(), "reg")
    add(svm.LinearSVR(), "reg")
    for kind in (lm.LinearRegression, lm.Ridge, lm.Lasso, lm.ElasticNet):
        add(kind(fit_intercept=False), "reg", variant="no intercept")
        add(kind(), "regmulti", variant="two targets")
    add(lm.Ridge(fit_intercept=False), "regmulti", variant="two targets, no intercept")
    for name in ["MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV"]:
        add(getattr(lm, name)(), "regmulti")
    add(lm.GammaRegressor(), "regpos")
    add(lm.PoissonRegressor(), "regpos")
    add(lm.PoissonRegressor(fit_intercept=False), "regpos", variant="no intercept")
    for power in (0, 1, 1.5, 2):
        add(lm.TweedieRegressor(power=power), "regpos", variant=f"power={power}")
    add(lm.LogisticRegression(), "bin", "iris", "binstr", "irisstr")
    add(lm.LogisticRegression(fit_intercept=False), "bin", "iris", variant="no intercept")
    add(lm.LogisticRegressionCV(), "bin", "iris")
    add(lm.RidgeClassifier(), "bin", "iris")
    add(lm.RidgeClassifierCV(), "bin", "iris")
    add(svm.LinearSVC(), "bin", "iris")
    add(lm.PassiveAggressiveClassifier(random_state=0), "bin", "iris")
    add(lm.Perceptron(random_state=0), "bin", "iris")
    for loss in ("hinge", "log_loss", "modified_huber", "squared_hinge"):
        # small steps: scores of 1e26 and probabilities of 0 and 1 cannot be trained
        small = {"learning_rate": "constant", "eta0": 1e-3, "max_iter": 20, "random_state": 0}
        add(lm.SGDClassifier(loss=loss, **small), "bin", "iris", variant=loss)
    add(lm.SGDOneClassSVM(random_state=0), "iris")
    add(discriminant_analysis.LinearDiscriminantAnalysis(), "bin", "iris")
    add(discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1), "bin", "iris")
    add(cross_decomposition.PLSRegression(), "reg", "regmulti")


def _networks() -> None:
    nn = neural_network
    for activation in ("identity", "logistic", "relu", "tanh"):
        options = {"hidden_layer_sizes": (8, 6), "activation": activation, "max_iter": 30, "random_state": 0}
        add(nn.MLPRegressor(**options), "reg", "regmulti", variant=activation)
        add(nn.MLPClassifier(**options), "bin", "iris", variant=activation)


def _preprocessing() -> None:
    pp = preprocessing
    for estimator in (
        pp.StandardScaler(),
        pp.MinMaxScaler(),
        pp.MaxAbsScaler(),
        pp.RobustScaler(),
        pp.Binarizer(threshold=1.5),
        pp.PolynomialFeatures(),
        pp.PowerTransformer(),
        pp.QuantileTransformer(n_quantiles=20),
        pp.KBinsDiscretizer(encode="onehot-dense", strategy="uniform"),
        pp.FunctionTransformer(),
        feature_extraction.text.TfidfTransformer(),
        ensemble.RandomTreesEmbedding(5, max_depth=2, random_state=0, sparse_output=False),
    ):
        add(estimator, "iris")
    for norm in ("l1", "l2", "max"):
        add(pp.Normalizer(norm), "iris", variant=norm)
    add(pp.StandardScaler(with_mean=False), "iris", variant="no mean")
    add(pp.StandardScaler(with_std=False), "iris", variant="no std")
    add(pp.PowerTransformer(standardize=False), "iris", variant="not standardized")
    add(impute.SimpleImputer(), "nan")
    add(impute.KNNImputer(), "nan")
    add(pp.KernelCenterer(), "kern")
    add(pp.OneHotEncoder(sparse_output=False), "catint")
    add(pp.OrdinalEncoder(), "cat")
    add(pp.TargetEncoder(), "catbin")
    add(pp.LabelBinarizer(), "label")
    add(pp.LabelEncoder(), "label")


def _projections() -> None:
    for estimator in (
        decomposition.PCA(2),
        decomposition.IncrementalPCA(2),
        decomposition.TruncatedSVD(2),
        decomposition.KernelPCA(2),
        random_projection.GaussianRandomProjection(2, random_state=0),
        neighbors.NeighborhoodComponentsAnalysis(2, random_state=0),
        neighbors.KNeighborsTransformer(),
        cluster.KMeans(3, random_state=0, n_init=1),
        cluster.MiniBatchKMeans(3, random_state=0, n_init=1),
    ):
        add(estimator, "iris")
    add(decomposition.PCA(2, whiten=True), "iris", variant="whiten")
    for kernel in ("linear", "rbf", "poly", "sigmoid", "cosine"):
        add(decomposition.KernelPCA(2, kernel=kernel, gamma=0.02), "iris", variant=kernel)


def _selections() -> None:
    fs, stump = feature_selection, tree.DecisionTreeClassifier(random_state=0)
    for estimator in (
        fs.VarianceThreshold(),
        fs.SelectKBest(k=2),
        fs.SelectPercentile(percentile=50),
        fs.SelectFdr(),
        fs.SelectFpr(),
        fs.SelectFwe(),
        fs.GenericUnivariateSelect(mode="k_best", param=2),
        fs.RFE(stump),
        fs.RFECV(stump),
        fs.SelectFromModel(stump),
    ):
        add(estimator, "iris")


def _no_rows_of_numbers() -> None:
    text = feature_extraction.text
    add(text.CountVectorizer(), "text")
    add(text.TfidfVectorizer(), "text")
    add(feature_extraction.DictVectorizer(), "dict")
    add(feature_extraction.FeatureHasher(4, input_type="dict"), "dict")


def _of_skl2onnx() -> None:
    add(sklapi.CastRegressor(linear_model.LinearRegression()), "reg")
    add(sklapi.CastTransformer(), "iris")
    add(sklapi.ReplaceTransformer(from_value=0, to_value=1), "iris")


def _svm() -> None:
    for kernel in ("linear", "rbf", "poly", "sigmoid"):
        add(svm.SVR(kernel=kernel), "reg", variant=kernel)
        add(svm.SVC(kernel=kernel), "bin", "iris", variant=kernel)
    add(svm.NuSVR(), "reg")
    add(svm.NuSVC(), "bin", "iris")
    add(svm.SVC(probability=True, random_state=0), "bin", "iris", variant="probability")
    add(svm.OneClassSVM(), "iris")


def _trees() -> None:
    options = {"random_state": 0}
    for module, name in (
        (tree, "DecisionTree"), (tree, "ExtraTree"), (ensemble, "RandomForest"), (ensemble, "ExtraTrees"),
        (ensemble, "GradientBoosting"), (ensemble, "HistGradientBoosting"), (ensemble, "AdaBoost"),
    ):  # fmt: skip
        some = {}
        if "Hist" in name:
            some = {"max_iter": 5, "min_samples_leaf": 5}
        elif module is ensemble:
            some = {"n_estimators": 5}
        add(getattr(module, f"{name}Regressor")(**options, **some), "reg")
        add(getattr(module, f"{name}Classifier")(**options, **some), "bin", "iris")
    add(tree.DecisionTreeRegressor(max_depth=3, random_state=0), "regmulti", variant="two targets")
    add(ensemble.RandomForestRegressor(5, max_depth=3, random_state=0), "regmulti", variant="two targets")
    add(ensemble.IsolationForest(n_estimators=5, random_state=0), "iris")


def _neighbours_and_bayes() -> None:
    add(neighbors.KNeighborsRegressor(), "reg")
    add(neighbors.KNeighborsRegressor(weights="distance"), "reg", variant="distance")
    add(neighbors.KNeighborsClassifier(), "bin", "iris")
    add(neighbors.RadiusNeighborsRegressor(radius=10), "reg")
    add(neighbors.RadiusNeighborsClassifier(radius=10), "bin")
    add(neighbors.NearestNeighbors(radius=None), "iris")
    add(neighbors.NearestNeighbors(), "iris", variant="radius")
    add(neighbors.LocalOutlierFactor(novelty=True), "iris")
    add(naive_bayes.GaussianNB(), "bin", "iris")
    add(naive_bayes.BernoulliNB(), "bin", "iris")
    add(naive_bayes.MultinomialNB(), "binpos")
    add(naive_bayes.ComplementNB(), "binpos")
    add(naive_bayes.CategoricalNB(), "cat")
    for covariance in ("full", "tied", "diag", "spherical"):
        add(mixture.GaussianMixture(2, covariance_type=covariance, random_state=0), "bin", variant=covariance)
    add(mixture.BayesianGaussianMixture(n_components=2, random_state=0), "bin")
    add(gaussian_process.GaussianProcessRegressor(), "reg")
    for kernel in (
        kernels.RBF(2.0),
        kernels.ConstantKernel(2.0) * kernels.RBF(2.0) + kernels.WhiteKernel(),
        kernels.Matern(2.0, nu=1.5),
        kernels.RationalQuadratic(),
        kernels.DotProduct(),
    ):
        add(gaussian_process.GaussianProcessRegressor(kernel, optimizer=None, alpha=1.0), "reg", variant=str(kernel))
    add(gaussian_process.GaussianProcessClassifier(), "bin", "iris")
    add(gaussian_process.GaussianProcessClassifier(multi_class="one_vs_one"), "iris", variant="one_vs_one")


def _kernels() -> None:
    for kernel in ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine"):
        add(kernel_ridge.KernelRidge(kernel=kernel), "reg", variant=kernel)
    add(kernel_ridge.KernelRidge(), "regmulti", variant="two targets")
    for kernel in ("chi2", "additive_chi2"):
        add(kernel_ridge.KernelRidge(kernel=kernel, gamma=0.5), "binpos", variant=kernel)
    add(kernel_ridge.KernelRidge(kernel=_overlap), "reg", variant="function")
    add(kernel_ridge.KernelRidge(kernel="precomputed"), "kern", variant="precomputed")
    for kind in (semi_supervised.LabelPropagation, semi_supervised.LabelSpreading):
        add(kind(gamma=0.5), "bin", "iris", variant="rbf")
        add(kind(kernel="knn"), "iris", variant="knn")
    gp, options = gaussian_process.GaussianProcessRegressor, {"optimizer": None, "alpha": 1.0}
    for kernel in (
        kernels.RBF([1.0, 2.0, 3.0, 4.0, 5.0]) ** 2,
        kernels.Matern(2.0, nu=0.5) + kernels.Matern(2.0, nu=2.5) * kernels.Matern(2.0, nu=np.inf),
        kernels.Matern(2.0, nu=2.0),
        kernels.ExpSineSquared(0.5, 30.0) + kernels.WhiteKernel(10.0),
        kernels.PairwiseKernel(metric="laplacian", gamma=0.1),
    ):
        add(gp(kernel, **options), "reg", variant=str(kernel))
    add(gp(kernels.RBF(2.0), normalize_y=True, **options), "regmulti", variant="two targets")
    for kernel in (
        1.5 * kernels.RBF(2.0) + kernels.WhiteKernel(0.1),
        kernels.DotProduct() + kernels.PairwiseKernel(metric="polynomial"),
        kernels.PairwiseKernel(metric="cosine") * kernels.PairwiseKernel(metric="chi2"),
    ):
        add(gaussian_process.GaussianProcessClassifier(kernel, optimizer=None), "binpos", variant=str(kernel))


def _overlap(a: Any, b: Any) -> Any:
    return np.minimum(a, b).sum()


def _combined() -> None:
    lr, log = linear_model.LinearRegression, linear_model.LogisticRegression
    scaler, mlp = preprocessing.StandardScaler, neural_network.MLPClassifier
    make = pipeline.make_pipeline
    add(make(scaler(), lr()), "reg", variant="scaler, linear")
    add(make(scaler(), log()), "bin", "iris", variant="scaler, logistic")
    add(make(preprocessing.MinMaxScaler(), decomposition.PCA(2), log()), "iris", variant="minmax, pca, logistic")
    add(
        make(scaler(), decomposition.PCA(3), mlp((8,), max_iter=20, random_state=0)),
        "bin",
        "iris",
        variant="scaler, pca, mlp",
    )
    add(make(preprocessing.Normalizer(), log()), "iris", variant="normalizer, logistic")
    add(make(preprocessing.PolynomialFeatures(), linear_model.Ridge()), "reg", variant="polynomial, ridge")
    for alpha in (0.1, 0.5):
        selection = feature_selection.SelectFromModel(linear_model.Lasso(alpha))
        add(make(scaler(), selection, linear_model.Ridge()), "reg", variant=f"selection by {alpha}, ridge")
    add(make(impute.SimpleImputer(), scaler(), log()), "nan", variant="imputer, scaler, logistic")
    add(make(scaler(), svm.SVC()), "iris", variant="scaler, svc")
    add(ensemble.BaggingRegressor(lr(), 3, random_state=0), "reg")
    add(ensemble.BaggingClassifier(log(), 3, random_state=0), "bin", "iris")
    add(ensemble.VotingRegressor([("a", lr()), ("b", linear_model.Ridge(10.0))]), "reg")
    add(ensemble.VotingClassifier([("a", log()), ("b", log(C=0.1))], voting="soft"), "bin", "iris", variant="soft")
    add(ensemble.VotingClassifier([("a", log()), ("b", log(C=0.1))]), "iris", variant="hard")
    add(ensemble.StackingRegressor([("a", lr()), ("b", tree.DecisionTreeRegressor(max_depth=2))]), "reg")
    add(ensemble.StackingClassifier([("a", log()), ("b", tree.DecisionTreeClassifier(max_depth=2))]), "bin", "iris")
    add(multioutput.MultiOutputRegressor(lr()), "regmulti")
    add(multioutput.MultiOutputClassifier(log()), "clfmulti")
    add(multiclass.OneVsRestClassifier(log()), "bin", "iris")
    add(multiclass.OneVsOneClassifier(log()), "iris")
    add(calibration.CalibratedClassifierCV(svm.LinearSVC()), "bin", "iris", variant="sigmoid")
    add(calibration.CalibratedClassifierCV(svm.LinearSVC(), method="isotonic"), "bin", variant="isotonic")
    add(compose.TransformedTargetRegressor(lr(), transformer=scaler()), "reg")
    add(compose.ColumnTransformer([("a", scaler(), [0, 1]), ("b", preprocessing.MinMaxScaler(), [2, 3])]), "iris")
    add(pipeline.FeatureUnion([("a", scaler()), ("b", decomposition.PCA(2))]), "iris")
    add(model_selection.GridSearchCV(log(), {"C": [1.0, 10.0]}), "bin", "iris")
    add(model_selection.TunedThresholdClassifierCV(log(), cv=2), "bin")
    add(model_selection.FixedThresholdClassifier(log()), "bin")
    add(model_selection.FixedThresholdClassifier(log(), threshold=0.3), "bin", variant="0.3")
    add(multioutput.RegressorChain(lr(), order=[1, 0]), "regmulti")
    add(multioutput.RegressorChain(tree.DecisionTreeRegressor(max_depth=3)), "regmulti", variant="trees")
    for method in ("predict", "predict_proba", "predict_log_proba"):
        add(multioutput.ClassifierChain(log(), chain_method=method), "labels", variant=method)
    add(multioutput.ClassifierChain(svm.LinearSVC(), order=[1, 0]), "labels", variant="svc")
    add(multioutput.ClassifierChain(svm.SVC(), chain_method="decision_function"), "labels", variant="kernel")
    for member in (svm.SVC(), svm.LinearSVC(), make(scaler(), svm.SVC())):
        add(multiclass.OneVsRestClassifier(member), "bin", "iris", "labels", variant=type(member).__name__)
    for member in (log(), svm.SVC()):
        code = multiclass.OutputCodeClassifier(member, code_size=4, random_state=0)
        add(code, "iris", variant=type(member).__name__)
    add(calibration.CalibratedClassifierCV(svm.LinearSVC(), method="isotonic"), "iris", variant="isotonic iris")
    add(calibration.CalibratedClassifierCV(log(), method="isotonic", ensemble=False), "bin", variant="one isotonic")
    if "temperature" in calibration.CalibratedClassifierCV._parameter_constraints["method"][0].options:
        for member in (svm.LinearSVC(), log(), neighbors.KNeighborsClassifier(30)):
            by_temperature = calibration.CalibratedClassifierCV(member, method="temperature")
            add(by_temperature, "bin", "iris", variant=f"temperature {type(member).__name__}")
    add(semi_supervised.SelfTrainingClassifier(log()), "bin", "iris")
    for metric, priors in (("euclidean", "empirical"), ("manhattan", "uniform")):
        add(neighbors.NearestCentroid(metric=metric, priors=priors), "skewed", variant=f"{metric} {priors}")
    add(neighbors.NearestCentroid(), "iris", variant="equal priors")
    add(isotonic.IsotonicRegression(), "one")
    add(isotonic.IsotonicRegression(increasing=False, out_of_bounds="clip"), "one", variant="decreasing")
    add(cross_decomposition.CCA(1), "regmulti")
    add(cross_decomposition.PLSCanonical(2), "regmulti")
    add(dummy.DummyRegressor(), "reg", "regmulti")
    for strategy in ("prior", "most_frequent", "uniform"):
        add(dummy.DummyClassifier(strategy=strategy), "bin", variant=strategy)
    add(dummy.DummyClassifier(strategy="constant", constant=1), "bin", variant="constant")


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # deprecated classes are also converted
    for _family in (
        _linear,
        _networks,
        _preprocessing,
        _projections,
        _selections,
        _svm,
        _trees,
        _neighbours_and_bayes,
        _kernels,
        _combined,
        _no_rows_of_numbers,
        _of_skl2onnx,
    ):
        _family()


#: Estimators without a faithful graph, and a part of the error message.
REFUSED = {
    "LabelBinarizer": "takes X of shape",
    "LabelEncoder": "takes X of shape",
    "CountVectorizer": "takes X of shape",
    "TfidfVectorizer": "takes X of shape",
    "DictVectorizer": "takes X of shape",
    "FeatureHasher": "takes X of shape",
    "NearestNeighbors: radius": "radius and n_neighbors at the same time",
    "GaussianProcessClassifier: one_vs_one": "Set multi_class='one_vs_rest'",
    "GaussianProcessRegressor: Matern(length_scale=2, nu=2)": "Set nu to 0.5, 1.5, 2.5 or np.inf",
    "KernelRidge: function": "has no formula in ONNX",
    "NearestCentroid: equal priors": r"priors='empirical'",
    "KNNImputer": "where scikit-learn runs it",
    "TunedThresholdClassifierCV": "apply the threshold outside",
    "FixedThresholdClassifier: 0.3": "apply the threshold outside",
    "DummyClassifier: uniform": "choose strategy='prior'",
}

#: Estimators that are converted but have no weight with a derivative, and the reason.
WITHOUT_WEIGHTS = {
    "Binarizer": "a threshold is a step",
    "PolynomialFeatures": "nothing is learned",
    "QuantileTransformer": "values are looked up in a table",
    "KBinsDiscretizer": "a bin is a number of a column",
    "VarianceThreshold": "columns are chosen",
    "FunctionTransformer": "nothing is learned",
    "CastTransformer": "nothing is learned",
    "ReplaceTransformer": "nothing is learned",
    "SelectKBest": "columns are chosen",
    "SelectPercentile": "columns are chosen",
    "SelectFdr": "columns are chosen",
    "SelectFpr": "columns are chosen",
    "SelectFwe": "columns are chosen",
    "GenericUnivariateSelect": "columns are chosen",
    "SelectFromModel": "columns are chosen",
    "RandomTreesEmbedding": "the index of a leaf is discrete",
    "Normalizer: l1": "nothing is learned",
    "Normalizer: l2": "nothing is learned",
    "Normalizer: max": "nothing is learned",
    "OneHotEncoder": "categories are discrete",
    "OrdinalEncoder": "categories are discrete",
    "TargetEncoder": "means are looked up by category",
    "IsolationForest": "the score counts splits",
    "KNeighborsClassifier: bin": "neighbours vote",
    "KNeighborsClassifier: iris": "neighbours vote",
    "RadiusNeighborsClassifier": "neighbours vote",
    "VotingClassifier: hard": "classifiers vote",
    "DummyClassifier: most_frequent": "frequencies of classes, which no column changes",
    "DummyClassifier: constant": "a class is no real number",
}

#: The largest difference between the graph and the estimator with the trained weights, relative to the largest value,
#: for estimators in which 1e-5 is below the precision of float32. The graph rounds, but scikit-learn computes in
#: float64.
ROUNDING = {
    # the columns are collinear, so precisions reach 800; the square of a small difference of such large products is
    # taken
    "GaussianMixture: full": 1e-4,
    "GaussianMixture: tied": 1e-4,
    "BayesianGaussianMixture": 1e-4,
    # the eigenvector is divided by the root of an eigenvalue near zero
    "KernelPCA: sigmoid": 1e-4,
    # the kernel of pairs of rows is weighted by dual coefficients of both signs, whose sum is far smaller
    "SVC: linear bin": 1e-4,
    "SVC: poly iris": 1e-4,
}
