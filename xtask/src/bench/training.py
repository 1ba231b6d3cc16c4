"""LoRA steps of PyTorch with PEFT on four sequences of 256 tokens: one JSON object on stdout.

    python training.py CONTEXT REPEATS THREADS

The model has SmolLM2-135M's shape and random weights: what a step costs does not depend on them.
"""

import json
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SEQUENCES, LENGTH = 4, 256


def main():
    context, repeats, threads = (int(argument) for argument in sys.argv[1:])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    model = LlamaForCausalLM(config)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    model.train()
    variables = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(variables, lr=1e-4)
    tokens = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    labels = tokens.clone()
    labels[:, :context] = -100
    fastest = float("inf")
    for number in range(repeats + 1):
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(input_ids=tokens, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(variables, 1.0)
        optimizer.step()
        if number > 0:
            fastest = min(fastest, time.perf_counter() - begun)
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    print(json.dumps({"tokens_per_second": SEQUENCES * LENGTH / fastest, "peak_memory": peak}))


main()
