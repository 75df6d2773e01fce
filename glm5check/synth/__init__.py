"""GGUF sets of GLM-5's own dimensions with random weights: what a machine without 467 GB of weights can be tested on.

`write_set(model, out)` in `write` makes everything: the set, HF config, generation config and tokenizer.
"""
