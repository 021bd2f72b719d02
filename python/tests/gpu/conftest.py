"""What the tests with PyTorch share; on a GPU where UMF_TEST_GPU=real."""

from gpu_helpers import compute  # noqa: F401
