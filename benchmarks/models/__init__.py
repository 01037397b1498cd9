"""What vbdrop makes of the models that people have: a table of architectures, each tried from `convert_` to ONNX."""
