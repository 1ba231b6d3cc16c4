"""Compares what is exported with what PEFT makes of it: `training_peft.py BASE FOLDER`.

The folder has the adapter in `mine` and the merged model in `model`; their logits must be equal, and
PEFT must find every key that it expects.
"""

import sys
import warnings
from pathlib import Path

import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM

base_path, folder = sys.argv[1], Path(sys.argv[2])
with warnings.catch_warnings():
    # PEFT warns of keys that are missing.
    warnings.simplefilter("error", UserWarning)
    base = AutoModelForCausalLM.from_pretrained(base_path, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(base, folder / "mine")
expected = {
    name.replace(".default", "") for name in adapted.state_dict() if "lora_" in name
}
with safe_open(folder / "mine" / "adapter_model.safetensors", "pt") as file:
    assert set(file.keys()) == expected, expected ^ set(file.keys())
merged = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
tokens = torch.tensor([[3 + i * 17 % 90 for i in range(24)]])
with torch.no_grad():
    a, b = adapted(tokens).logits, merged(tokens).logits
    with adapted.disable_adapter():
        plain = adapted(tokens).logits
assert (a - b).abs().max() < 1e-4, (a - b).abs().max()
assert (a - plain).abs().max() > 1e-2, (a - plain).abs().max()
