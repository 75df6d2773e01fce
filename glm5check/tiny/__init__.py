"""The embedded tiny GLM-5: corpus, tokenizer, training, K-quantisers and the GGUF export, as one reproducible build.

`python -m glm5check.tiny DIR --seed 0` makes everything; `export_gguf` (in `export`) is of use by itself, for any
`GlmMoeDsaForCausalLM` state dict.
"""
