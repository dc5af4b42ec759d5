"""The llama.cpp backend: runs GGUF files on llama-cpp-python's low-level interface. Imports engine.models and what lies
below it. A file comes in as a path, logits go out as torch tensors; nothing here imports ``llama_cpp`` before a load.
"""
