"""Fine-tune scikit-learn and ONNX models with onnxruntime."""
