"""Parts of the page as HTML, in which everything that comes from visitors or models is escaped; page.css styles it."""

from difflib import SequenceMatcher
from html import escape
from itertools import pairwise

import numpy as np

from ..decoding.translator import Translation
from .session import Answer

MOST_TOKENS = 60  # of a side of a heat map; with more it cannot be read, and slows the browser
TEMPLATE_MARKS = str.maketrans({mark: f"&#{ord(mark)};" for mark in "${}`"})


def safe(text: str) -> str:
    """Text as HTML that shows it as it is, also inside the templates that Gradio fills in."""
    return escape(text).translate(TEMPLATE_MARKS)


def heading(title: str, subtitle: str) -> str:
    """The top of the page."""
    return f'<header class="nmt-head"><h1>{safe(title)}</h1><p>{safe(subtitle)}</p></header>'


def notice(message: str) -> str:
    """What went wrong, which a screen reader says at once; nothing where nothing did."""
    return f'<p class="nmt-notice" role="alert">{safe(message)}</p>' if message else ""


def speed(answer: Answer) -> str:
    """Time and tokens a second."""
    per_second = answer.tokens / answer.seconds if answer.seconds else 0.0
    facts = (f"{answer.seconds:.2f} s", f"{answer.tokens:,} tokens", f"{per_second:,.0f} tokens a second")
    return '<p class="nmt-speed">' + "".join(f"<span>{fact}</span>" for fact in facts) + "</p>"


def warning(answer: Answer, sentences: list[str]) -> str:
    """Which sentences are probably translated wrongly; nothing where none is."""
    if not any(answer.unusual):
        return ""
    if len(sentences) == 1:
        which = "This sentence is"
    else:
        found = [str(number) for number, is_unusual in enumerate(answer.unusual, 1) if is_unusual]
        which = f"Sentence {found[0]} is" if len(found) == 1 else f"Sentences {', '.join(found)} are"
    text = f"{which} probably unlike what the model was trained on, and translated wrongly."
    return f'<p class="nmt-warning" role="status">{safe(text)}</p>'


def details(answer: Answer, sentences: list[str]) -> str:
    """For each sentence its best translations and the attention of the first; of several, the first is unfolded."""
    parts = [
        f'<div class="nmt-answer">{_alternatives(found)}{_attention(found[0])}</div>' for found in answer.sentences
    ]
    if len(parts) == 1:
        return parts[0]
    rows = enumerate(zip(sentences, parts, strict=True))
    return "".join(_folded(sentence, part, number == 0) for number, (sentence, part) in rows if sentence)


def _folded(sentence: str, part: str, is_open: bool) -> str:
    """What there is to a sentence, below the sentence itself."""
    summary = f'<summary dir="auto">{safe(sentence)}</summary>'
    return f'<details class="nmt-sentence"{" open" if is_open else ""}>{summary}{part}</details>'


def _alternatives(found: list[Translation]) -> str:
    """A table of translations, best first; words that differ from the best are marked."""
    rows = "".join(
        f'<tr><td>{rank}</td><td dir="auto">{_marked(other.text, found[0].text)}</td>'
        f'<td data-head="score">{_number(other.score)}</td>'
        f'<td data-head="log-probability">{_number(other.log_prob)}</td></tr>'
        for rank, other in enumerate(found, 1)
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("#", "Translation", "Score", "Log-probability"))
    return (
        '<table class="nmt-nbest"><caption>Best translations, ranked by score: the log-probability over a power of the '
        f"length.</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _number(value: float) -> str:
    """Two decimals with a true minus sign; 0 has no sign."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _marked(text: str, best: str) -> str:
    """A translation with a mark on its words that the best one has not in that place."""
    words, others = text.split(), best.split()
    parts = []
    for kind, _, _, start, end in SequenceMatcher(None, others, words, autojunk=False).get_opcodes():
        if start < end:
            run = safe(" ".join(words[start:end]))
            parts.append(run if kind == "equal" else f"<mark>{run}</mark>")
    return " ".join(parts)


def _attention(translation: Translation) -> str:
    """A heat map, a row for each token of the translation; nothing where the backend gave no attention."""
    weights = translation.attention
    if weights is None or not weights.size:
        return ""
    if max(weights.shape) > MOST_TOKENS:
        return f'<p class="nmt-note">Attention is drawn for up to {MOST_TOKENS} tokens a side.</p>'
    return (
        '<figure class="nmt-heat"><figcaption>Attention: where each token of the translation (rows) looks in the '
        f'source (columns).</figcaption><div class="nmt-scroll">{_table(translation, weights)}</div>'
        '<p class="nmt-scale" aria-hidden="true"><span>0</span><i></i><span>100 %</span></p></figure>'
    )


def _table(translation: Translation, weights: np.ndarray) -> str:
    """The cells, whose numbers are percentages: unseen, but read aloud, copied, and shown under the pointer."""
    source = _labels(translation.source_tokens)
    heads = "".join(f'<th scope="col"><span>{token}</span></th>' for token in source)
    rows = []
    for target, row in zip(_labels(translation.tokens), weights, strict=True):
        cells = "".join(
            f'<td style="--w:{weight:.2f}" title="{target} ← {token}: {weight:.0%}">{100 * weight:.0f}</td>'
            for token, weight in zip(source, row, strict=True)
        )
        rows.append(f'<tr><th scope="row">{target}</th>{cells}</tr>')
    return f"<table><thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _labels(tokens: list[str]) -> list[str]:
    """Tokens as the axes show them: a dot in front of those that go on with a word."""
    begins = [True, *(one.endswith(" ") or other.startswith(" ") for one, other in pairwise(tokens))]
    shown = [token.strip() or "␣" for token in tokens]
    return [safe(token if begin else f"·{token}") for token, begin in zip(shown, begins, strict=True)]
