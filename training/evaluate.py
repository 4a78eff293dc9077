"""Score a model on a test set: BLEU and chrF with sacrebleu's signatures, lower-cased tokenised BLEU, perplexity.

    python training/evaluate.py runs/multi30k-en-de-18-6/standard --source test.en --target test.de

References are taken as they are, translations are detokenised text; the numbers are those of sacrebleu's own command.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from admin_nmt import Translator
from admin_nmt.data import load_parallel, tokenize
from admin_nmt.evaluation import mean_nll
from admin_nmt.metrics import score, tokenized_bleu
from cli import parse, run


@dataclass
class Arguments:
    model: str = field(metadata={"help": "Folder or Hub repository of a model."})
    source: str = field(metadata={"help": "Source sentences, or a TSV, JSONL or Parquet file of pairs."})
    target: str | None = field(default=None, metadata={"help": "Reference translations, if `source` holds none."})
    language: str = field(default="de", metadata={"help": "Target language, for Moses tokenisation."})
    num_beams: int = field(default=5, metadata={"help": "Beam size; 1 is greedy search."})
    length_penalty: float = field(default=1.0, metadata={"help": "Scores are divided by length to this power."})
    max_tokens: int = field(default=4096, metadata={"help": "Source positions of a batch."})
    output: str | None = field(default=None, metadata={"help": "File for the translations."})


def main() -> None:
    args = parse(Arguments, __doc__)
    pairs = load_parallel(args.source, args.target)
    translator = Translator.from_pretrained(
        args.model, max_tokens=args.max_tokens, num_beams=args.num_beams, length_penalty=args.length_penalty
    )
    translations = translator.translate(pairs["source"][:], progress=True)
    references = pairs["target"][:]
    if args.output:
        Path(args.output).write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
    results = score(translations, references, args.language)
    results["tokenized_lowercase_bleu"] = tokenized_bleu(translations, references, args.language)
    results["sentences"] = len(pairs)
    positions = translator.model.config.max_position_embeddings
    data = tokenize(pairs, translator.tokenizer, translator.target_tokenizer, max_length=positions)
    results["nll"] = mean_nll(translator.model, data, max_tokens=args.max_tokens, progress=True)
    results["nll_sentences"] = len(data)  # those that the model's positions have room for
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    run(main)
