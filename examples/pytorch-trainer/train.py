"""A training command for `backend = "command"`: PyTorch with PEFT.

    pip install torch transformers peft gguf

    [train]
    backend = "command"
    command = ["python", "examples/pytorch-trainer/train.py"]

The last argument is the path of a request. It names the model, the adapter that the sequences were
sampled with, the data set of token ids, and the folder for the new adapter; docs/training.md has its
form. One update is one pass over the data set. Replace what you like: `torchrun`, Accelerate, a job on
a cluster. What counts is that the loss is on the labels alone, divided by how many there are in the
whole minibatch, and that nothing is tokenised from text.
"""

import json
import random
import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

IGNORED = -100


def load(request, settings):
    path = Path(request["model"])
    if path.suffix == ".gguf":
        base = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        )
    else:
        base = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if request["adapter"]:
        return PeftModel.from_pretrained(base, request["adapter"], is_trainable=True)
    lora = LoraConfig(
        r=settings["rank"],
        lora_alpha=settings["alpha"],
        lora_dropout=settings["dropout"],
        target_modules=settings["targets"],
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, lora)


def minibatches(rows, size, seed):
    rows = list(rows)
    random.Random(seed).shuffle(rows)
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def loss_of(model, row):
    """Minus the sum of the labelled tokens' log-probabilities."""
    tokens = torch.tensor([row["input_ids"]])
    labels = torch.tensor(row["labels"])
    logits = model(input_ids=tokens).logits[0, :-1].float()
    return torch.nn.functional.cross_entropy(
        logits, labels[1:], ignore_index=IGNORED, reduction="sum"
    )


def main():
    request = json.loads(Path(sys.argv[-1]).read_text())
    assert request["format"] == 1, request["format"]
    settings = request["settings"]
    torch.manual_seed(request["seed"] + request["update"])
    model = load(request, settings)
    model.train()
    variables = [p for p in model.parameters() if p.requires_grad]
    rate = settings["learning-rate"] * request["rate-factor"]
    optimizer = torch.optim.AdamW(
        variables,
        lr=rate,
        betas=settings["betas"],
        eps=settings["epsilon"],
        weight_decay=settings["weight-decay"],
    )
    # The moments of the update before lie beside its adapter, unless the run was resumed.
    moments = "optimizer.pt"
    if request["adapter"]:
        before = Path(request["adapter"]).parent / moments
        if before.exists():
            optimizer.load_state_dict(torch.load(before, weights_only=True))
            for group in optimizer.param_groups:
                group["lr"] = rate
    with open(request["dataset"]) as lines:
        rows = [json.loads(line) for line in lines]
    for batch in minibatches(rows, settings["minibatch"], request["update"]):
        labelled = sum(label != IGNORED for row in batch for label in row["labels"])
        optimizer.zero_grad()
        total = 0.0
        for row in batch:
            loss = loss_of(model, row) / labelled
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(variables, settings["clip"])
        optimizer.step()
        print(f"update {request['update']}: {len(batch)} sequences, loss {total:.4f}", flush=True)
    output = Path(request["output"])
    model.save_pretrained(output)
    torch.save(optimizer.state_dict(), output.parent / moments)


main()
