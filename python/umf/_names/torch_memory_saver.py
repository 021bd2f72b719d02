"""This folder is in the path of programs that `umf.compat` runs, and of the Python processes that they
start: there, too, torch_memory_saver is umf's."""

import sys

import umf.compat

del sys.modules["torch_memory_saver"]
umf.compat.install("torch_memory_saver")
