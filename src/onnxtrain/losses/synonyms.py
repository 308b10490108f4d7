"""The names of our losses in Keras, PyTorch, XGBoost and others, for the error that proposes our name."""

from __future__ import annotations

_NAMES = {
    "log": """
        cross_entropy crossentropy cross_entropy_loss ce ce_loss xent xentropy bce bce_loss bce_with_logits
        bce_with_logits_loss binary_cross_entropy binary_cross_entropy_with_logits binary_crossentropy
        categorical_crossentropy categorical_cross_entropy sparse_categorical_crossentropy softmax_cross_entropy
        softmax sigmoid nll nll_loss negative_log_likelihood logistic deviance binomial_deviance multinomial
        binary_logistic multi_softmax multi_softprob binary multiclass kl_div kl_divergence
    """,
    "hinge": "hinge_loss svm hinge_embedding_loss multi_margin_loss perceptron binary_hinge",
    "squared_hinge": "hinge_squared l2_hinge",
    "focal": "focal_loss sigmoid_focal_loss focal_crossentropy binary_focal_crossentropy",
    "squared_error": """
        mse mse_loss mean_squared_error mean_square_error squared squared_loss least_squares ls sse rmse
        root_mean_squared_error l2_loss quadratic regression square_loss reg_squarederror gaussian normal friedman_mse
    """,
    "absolute_error": "mae mae_loss mean_absolute_error lad l1_loss absolute regression_l1 reg_absoluteerror laplace",
    "huber": "huber_loss smooth_l1 smooth_l1_loss pseudo_huber reg_pseudohubererror",
    "quantile": "pinball pinball_loss quantile_loss mean_pinball_loss reg_quantileerror",
    "epsilon_insensitive": "svr eps_insensitive",
    "log_cosh": "logcosh log_cosh_loss",
    "poisson": "poisson_loss poisson_nll poisson_nll_loss poisson_deviance count_poisson half_poisson",
    "gamma": "gamma_deviance reg_gamma",
    "tweedie": "tweedie_deviance reg_tweedie",
}

#: Our name for each, by its name in lower-case letters and digits.
SYNONYMS = {"".join(filter(str.isalnum, name)): ours for ours, names in _NAMES.items() for name in names.split()}
