"""GGUF sets: dequantisation, index and audit."""
