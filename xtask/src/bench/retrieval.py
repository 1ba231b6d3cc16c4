"""The Python package bm25s on the same work: `retrieval.py PASSAGES QUESTIONS K`."""

import json
import sys
import time

import bm25s
import Stemmer

passages = [json.loads(line) for line in open(sys.argv[1])]
questions = [json.loads(line)["question"] for line in open(sys.argv[2])]
k = int(sys.argv[3])
stemmer = Stemmer.Stemmer("english")
options = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}

begin = time.perf_counter()
texts = [f"{p['title']}\n{p['text']}" for p in passages]
retriever = bm25s.BM25(k1=1.2, b=0.75)
retriever.index(bm25s.tokenize(texts, **options), show_progress=False)
build = time.perf_counter() - begin

times, found = [], []
for question in questions:
    begin = time.perf_counter()
    tokens = bm25s.tokenize(question, **options)
    hits, _ = retriever.retrieve(tokens, k=k, show_progress=False)
    times.append((time.perf_counter() - begin) * 1e3)
    found.append([passages[i]["id"] for i in hits[0]])
print(json.dumps({"build": build, "times": times, "found": found}))
