"""Drives a server with the official client, as a user would: `openai_client.py ADDRESS MODEL`."""

import json
import sys

import openai

address, model = sys.argv[1:]
client = openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0)
talk = [{"role": "user", "content": "What is the capital of France?"}]

assert [m.id for m in client.models.list()] == [model]
assert client.models.retrieve(model).id == model

# A whole reply, with log-probabilities and several choices.
reply = client.chat.completions.create(
    model=model, messages=talk, max_tokens=12, seed=3, n=2, logprobs=True, top_logprobs=2
)
assert [c.index for c in reply.choices] == [0, 1]
assert all(c.message.content for c in reply.choices)
content = reply.choices[0].logprobs.content
assert len(content) <= 12 and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in content)
assert "".join(t.token for t in content).startswith(reply.choices[0].message.content)
used = sum(len(c.logprobs.content) for c in reply.choices)
assert reply.usage.completion_tokens == used and reply.usage.prompt_tokens > 20
again = client.chat.completions.create(
    model=model, messages=talk, max_tokens=12, seed=3, n=2, logprobs=True, top_logprobs=2
)
assert [c.message for c in again.choices] == [c.message for c in reply.choices]
assert again.usage.prompt_tokens_details.cached_tokens > 0

# The same in pieces.
pieces = list(
    client.chat.completions.create(
        model=model,
        messages=talk,
        max_tokens=12,
        seed=3,
        n=2,
        stream=True,
        stream_options={"include_usage": True},
    )
)
for choice in reply.choices:
    own = [c for p in pieces for c in p.choices if c.index == choice.index]
    assert "".join(c.delta.content or "" for c in own) == choice.message.content
    assert own[-1].finish_reason == choice.finish_reason
assert pieces[-1].usage == reply.usage.model_copy(
    update={"prompt_tokens_details": pieces[-1].usage.prompt_tokens_details}
)

# Raw completions: texts, token ids in and out, stop strings.
raw = client.completions.create(
    model=model,
    prompt=["One, two,", "Red, green,"],
    max_tokens=6,
    temperature=0,
    extra_body={"return_token_ids": True},
)
assert len(raw.choices) == 2
first = raw.choices[0]
by_ids = client.completions.create(
    model=model, prompt=first.prompt_token_ids, max_tokens=6, temperature=0
)
assert by_ids.choices[0].text == first.text and len(first.token_ids) <= 6
stop = first.text.strip()[0]
stopped = client.completions.create(
    model=model, prompt="One, two,", max_tokens=6, temperature=0, stop=[stop]
)
assert stop not in stopped.choices[0].text and stopped.choices[0].finish_reason == "stop"

# Constraints.
schema = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["n"],
    "additionalProperties": False,
}
formatted = client.chat.completions.create(
    model=model,
    messages=talk,
    max_tokens=60,
    response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
)
assert 1 <= json.loads(formatted.choices[0].message.content)["n"] <= 99
chosen = client.chat.completions.create(
    model=model,
    messages=talk,
    max_tokens=20,
    extra_body={"structured_outputs": {"choice": ["Paris", "London"]}},
)
assert chosen.choices[0].message.content in ["Paris", "London"]

# Refusals are the client's own errors.
for wrong, kind in [
    (dict(model="nothing", messages=talk), openai.NotFoundError),
    (dict(model=model, messages=[]), openai.BadRequestError),
    (dict(model=model, messages=talk, temperature=-1), openai.BadRequestError),
]:
    try:
        client.chat.completions.create(**wrong)
    except kind as error:
        assert error.body["message"]
    else:
        raise AssertionError(wrong)
try:
    client.embeddings.create(model=model, input="x")
except openai.APIStatusError as error:
    assert error.status_code == 501
else:
    raise AssertionError("embeddings")
print("all well")
