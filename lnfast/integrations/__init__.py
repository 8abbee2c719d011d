"""lnfast inside other programs: one module for each, imported only where it is asked for.

    lnfast.integrations.autograd    primitives for HIPS autograd
    lnfast.integrations.thinc       thinc's LayerNorm, and the layer norms of a spaCy pipeline
    lnfast.integrations.onnx        operators for onnx.reference.ReferenceEvaluator
    lnfast.integrations.torch       an operator on PyTorch's CPU tensors, and nn.LayerNorm's twin
    lnfast.integrations.names       names and argument orders that people already type

Each of the first four needs its package: ``pip install 'lnfast[NAME]'``.
"""
