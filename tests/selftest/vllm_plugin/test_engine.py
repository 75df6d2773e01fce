"""The embedded model in vLLM's own engine, in one process, against transformers on the same file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glm5check.oracles.hf import TransformersOracle
from glm5check.tolerances import MEAN_KL_FLOAT32

MODEL = Path(__file__).parents[3] / "fixtures/data/tiny-glm5"
FIRST = MODEL / "glm5-tiny-UD-Q4_K_XL-00001-of-00003.gguf"
ENGINE = """
import json, sys
from vllm import LLM, SamplingParams

prompts = json.loads(sys.argv[3])
llm = LLM(model=sys.argv[1], tokenizer=sys.argv[2], hf_config_path=sys.argv[2], dtype="float32", enforce_eager=True,
          max_num_seqs=8, max_logprobs=-1, num_gpu_blocks_override=300)
asked = [{"prompt_token_ids": ids} for ids in prompts]
answers = llm.generate(asked, SamplingParams(max_tokens=1, prompt_logprobs=-1), use_tqdm=False)
rows = [[[given[token].logprob for token in range(len(given))] for given in answer.prompt_logprobs[1:]]
        for answer in answers]
print("LIMIT", llm.llm_engine.model_config.max_model_len)
print("ROWS", json.dumps(rows))
"""


@pytest.mark.slow
def test_the_engine_agrees_with_transformers():
    """Random tokens: memorised text would hide most faults. The context limit, not asked for, is index_topk."""
    prompts = np.random.default_rng(11).integers(0, 1024, (4, 32)).tolist()
    settings = {
        "VLLM_PLUGINS": "a_glm5check",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    command = [sys.executable, "-c", ENGINE, str(FIRST), str(MODEL), json.dumps(prompts)]
    run = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    said = dict(line.split(" ", 1) for line in run.stdout.splitlines() if line.startswith(("LIMIT ", "ROWS ")))
    assert said["LIMIT"] == "512"
    assert "fixes applied: merged_rank, cpu_rotary, moe_types; needed but left out: none" in run.stdout + run.stderr
    oracle = TransformersOracle(FIRST, MODEL)
    right = np.stack([oracle.logprobs(prompt)[:-1] for prompt in prompts])
    divergence = (np.exp(right) * (right - np.array(json.loads(said["ROWS"])))).sum(-1)
    assert abs(divergence.mean()) < MEAN_KL_FLOAT32
