"""From a model file to a Relax module: ONNX files and exported PyTorch programs."""
