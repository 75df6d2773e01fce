"""The fix that lets CUDA kernels load beside a torch older than the one they were built with, without a GPU."""

import subprocess
import sys

import pytest

from glm5check.errors import SetupError
from glm5check.vllm_plugin.fixes import cuda_kernels

LIBRARY = """
extern const char *torch_exception_get_what(void);
extern int torch_new_stable_ivalue(unsigned long **value);
extern int torch_delete_stable_ivalue(unsigned long *value);
int round_trip(void) {
    unsigned long *value;
    if (torch_new_stable_ivalue(&value)) return 1;
    *value = ~0ul;
    return torch_delete_stable_ivalue(value) || !torch_delete_stable_ivalue(0) || !*torch_exception_get_what();
}
"""
PROGRAM = """
import ctypes, os, sys
def load():
    return ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW)
try:
    load()
except OSError as error:
    from glm5check.vllm_plugin.fixes import cuda_kernels
    assert cuda_kernels.names_missing_function(str(error)), error
    cuda_kernels.provide_functions()
    sys.exit(load().round_trip())
sys.exit("the library loads without the fix")
"""


def test_a_library_that_asks_for_the_functions_loads_and_works_once_they_are_provided(tmp_path):
    source, library = tmp_path / "library.c", tmp_path / "library.so"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    subprocess.run([sys.executable, "-c", PROGRAM, library], check=True)


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("/site/_C_gguf.abi3.so: undefined symbol: torch_exception_get_what_without_backtrace", True),
        ("/site/_C_gguf.abi3.so: undefined symbol: torch_new_stable_ivalue", True),
        ("/site/_C_gguf.abi3.so: undefined symbol: torch_list_push_back", False),
        ("libcudart.so.13: cannot open shared object file: No such file or directory", False),
        ("", False),
    ],
)
def test_only_what_the_fix_provides_makes_it_needed(error, named):
    assert cuda_kernels.names_missing_function(error) is named


def test_a_machine_without_a_gpu_does_not_need_it():
    assert not cuda_kernels.is_needed()


def test_without_a_compiler_it_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(SetupError, match="C compiler"):
        cuda_kernels.provide_functions()
