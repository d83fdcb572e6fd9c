"""llm-foundry over streamplug writes and reads the same files and batches as over mosaicml-streaming.

`tox -c tests -e foundry` has it installed. Its converters, its text data set with a split, and its loaders of
mixtures and of prompts import `streaming`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# The lengths of loaders are not compared: only ours counts the samples that fill the last batch.
pytestmark = pytest.mark.skipif(
    find_spec("llmfoundry") is None, reason="llm-foundry is not installed"
)

# Its builds are each for one build of torch. torchmetrics asks whether it is there, and does without.
WITHOUT_TORCHVISION = """
import sys
import torchmetrics
from without_torchvision import Absent

sys.meta_path.append(Absent())
"""

CORPUS = """
import json, random
from pathlib import Path
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

rng = random.Random(3)
words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 7))) for _ in range(300)]

def text():
    return " ".join(rng.choices(words, k=rng.randint(20, 120)))

for folder in ("lines", "files", "prompts"):
    Path(folder).mkdir()
Path("lines/train.jsonl").write_text("".join(json.dumps({"text": text()}) + "\\n" for _ in range(400)))
for number in range(6):
    Path(f"files/{number}.txt").write_text("\\n".join(text() for _ in range(40)))
Path("prompts/train.jsonl").write_text(
    "".join(json.dumps({"prompt": text(), "response": text()}) + "\\n" for _ in range(150))
)
special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "[EOS]"}
tokens = Tokenizer(models.WordLevel(unk_token="[UNK]"))
tokens.pre_tokenizer = pre_tokenizers.Whitespace()
trainer = trainers.WordLevelTrainer(special_tokens=list(special.values()), show_progress=False)
tokens.train_from_iterator([" ".join(words)], trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, model_max_length=128, **special)
tokenizer.save_pretrained("tokenizer")
"""

WRITTEN = """
import hashlib
from llmfoundry.command_utils.data_prep.convert_dataset_json import convert_dataset_json
from llmfoundry.command_utils.data_prep.convert_finetuning_dataset import convert_finetuning_dataset
from llmfoundry.command_utils.data_prep.convert_text_to_mds import convert_text_to_mds

lines = {"path": "lines", "split": "train"}
convert_dataset_json(**lines, out_root="text/train", compression=None, concat_tokens=None)
packed = {"concat_tokens": 64, "compression": "zstd", "eos_text": "[EOS]"}
convert_dataset_json(**lines, **packed, out_root="tokens/train", tokenizer="tokenizer")
convert_text_to_mds(
    **packed, input_folder="files", output_folder="books/train", tokenizer_name="tokenizer", bos_text="",
    no_wrap=False, processes=2, args_str="", reprocess=False, trust_remote_code=False,
)
convert_finetuning_dataset(
    dataset="json", data_subset=None, splits=["train"], data_files=["prompts/train.jsonl"], out_root="tuning",
    preprocessor=None, skip_preprocessing=True, local=None, compression="zstd", num_workers=2, tokenizer=None,
    tokenizer_kwargs={}, max_seq_len=128, target_prompts="none", target_responses="last",
    encoder_decoder=False,
)
for folder in ("text", "tokens", "books", "tuning"):
    for path in sorted(Path(folder).rglob("*.*")):
        print(path, hashlib.sha1(path.read_bytes()).hexdigest())
"""

READ = """
import torch
from llmfoundry.data.finetuning import build_finetuning_dataloader
from llmfoundry.data.text_data import StreamingTextDataset, build_text_dataloader
from torch.utils.data import DataLoader

def show(name, loader, steps):
    for _, batch in zip(range(steps), loader):
        digests = {key: hashlib.sha1(value.numpy().tobytes()).hexdigest() for key, value in batch.items()
                   if isinstance(value, torch.Tensor)}
        print(name, tuple(batch["input_ids"].shape), digests)

text = StreamingTextDataset(
    tokenizer=tokenizer, max_seq_len=64, remote="text", local="near/text", split="train", shuffle=True,
    batch_size=8,
)
print(len(text), text[3]["input_ids"], text[-1]["input_ids"])
collate = lambda rows: {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}
show("text", DataLoader(text, batch_size=8, num_workers=2, collate_fn=collate), 100)
state = text.state_dict(48, True)
print([state[key] for key in ("epoch", "sample_in_epoch", "num_canonical_nodes", "shuffle_seed")])

mixture = {
    "streams": {
        "web": {"remote": "tokens", "local": "near/tokens", "split": "train", "proportion": 0.7},
        "books": {"remote": "books", "local": "near/books", "split": "train", "proportion": 0.3},
    },
    "max_seq_len": 64, "shuffle": True, "shuffle_seed": 17, "eos_token_id": tokenizer.eos_token_id,
    "num_canonical_nodes": 4, "predownload": 64, "download_retry": 2, "cache_limit": "1gb",
}
loading = {"tokenizer": tokenizer, "device_batch_size": 8, "num_workers": 2, "pin_memory": False,
           "drop_last": True}
loader = build_text_dataloader(dataset=mixture, **loading).dataloader
print(loader.dataset.size, loader.dataset.num_streams)
for epoch in range(2):
    show(f"mixture {epoch}", loader, 1000)

tuning = {
    "remote": "tuning", "local": "near/tuning", "split": "train", "shuffle": True, "max_seq_len": 128,
    "packing_ratio": None, "decoder_only_format": True, "target_responses": "last", "target_prompts": "none",
    "allow_pad_trimming": False,
}
show("tuning", build_finetuning_dataloader(dataset=tuning, **loading).dataloader, 1000)
"""

ALIAS = "import streamplug_mosaic\nstreamplug_mosaic.install()\n"
SIDES = {"theirs": ["", ()], "alias": [ALIAS, ()], "module": ["", ("-m", "streamplug_mosaic")]}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return a function that returns what the program prints, by which library is used and how."""
    found = {}

    def run(side):
        if side not in found:
            before, options = SIDES[side]
            folder = tmp_path_factory.mktemp(side)
            program = f"{before}{WITHOUT_TORCHVISION}{CORPUS}{WRITTEN}{READ}"
            (folder / "program.py").write_text(program, encoding="utf-8")
            done = subprocess.run(
                [sys.executable, *options, "program.py"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
                capture_output=True,
                text=True,
                timeout=280,
                check=False,
            )
            assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
            found[side] = done.stdout
        return found[side]

    return run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("side", ["module", "alias"])
def test_files_and_batches_are_the_same(printed, side):
    shown = printed("theirs")
    assert printed(side) == shown
    assert shown.count("\ntuning ") == 18
    assert min(shown.count(f"\nmixture {epoch} ") for epoch in range(2)) > 50
