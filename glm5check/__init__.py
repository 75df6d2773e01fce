"""glm5check: is a GLM-5 GGUF deployment on vLLM right, and as fast as its hardware allows?"""

__version__ = "0.1.0"
