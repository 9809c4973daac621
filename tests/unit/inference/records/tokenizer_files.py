"""Small tokenizers of the three kinds that models have, trained here on a few sentences."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all.",
    "Embeddings of documents are compared; queries of 12 words find 345 pages in 6.7 seconds.",
    "Ein Satz mit Umlauten: schöne Grüße aus Köln. Une phrase française, ça va très bien, n'est-ce pas?",
    "日本語の文章もあります。 Смешанный текст тоже возможен, don't you think so?",
)
KINDS = ("wordpiece", "bpe", "unigram")


def wordpiece() -> Tokenizer:
    """Like BERT's: lower case, no accents, `[CLS] a [SEP] b [SEP]`."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - a token of texts
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=300, show_progress=False, special_tokens=special)
    )
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", made.token_to_id("[CLS]")), ("[SEP]", made.token_to_id("[SEP]"))],
    )
    return made


def bpe() -> Tokenizer:
    """Like RoBERTa's: bytes, blanks that belong to words, a `<mask>` that takes the blank before it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, special_tokens=["<s>", "<pad>", "</s>"], initial_alphabet=alphabet
    )
    made.train_from_iterator(SENTENCES, trainer)
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return made


def unigram() -> Tokenizer:
    """Like XLM-RoBERTa's: sentencepiece, compatible forms of characters, runs of blanks as one."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(
        SENTENCES,
        trainers.UnigramTrainer(
            vocab_size=200,
            show_progress=False,
            special_tokens=special,
            unk_token="<unk>",  # noqa: S106 - as above
        ),
    )
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


def made(kind: str) -> Tokenizer:
    return {"wordpiece": wordpiece, "bpe": bpe, "unigram": unigram}[kind]()


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path
