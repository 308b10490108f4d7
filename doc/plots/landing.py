import matplotlib.pyplot as plt
import numpy as np
from sklearn.neural_network import MLPRegressor

from onnxtrain import OrtGradientRegressor

X = np.linspace(-3, 3, 200)[:, None]
y = np.sin(X.ravel()) + 4 * (np.arange(200) % 9 == 0)  # every ninth value is wrong
network = MLPRegressor(activation="tanh", solver="lbfgs", tol=1e-3, random_state=0)
network.fit(X, y)
tuned = OrtGradientRegressor(network, loss="absolute_error", random_state=0).fit(X, y)
tuned.get_trained_onnx(path="tuned.onnx")  # runs wherever onnxruntime does

plt.scatter(X, y, s=4, color="gray")
plt.plot(X, network.predict(X), label="scikit-learn: squared error")
plt.plot(X, tuned.predict(X), label="fine-tuned: absolute error")
plt.legend()
