"""How well vbdrop works on common models: a table of architectures, each tried from `convert_` to ONNX."""
