"""The page in the browser: Gradio's components around the models of `session`.

Nothing is loaded from other sites, nothing is sent to one, and what visitors write is not kept.
"""

import os
from collections.abc import Collection, Sequence
from difflib import SequenceMatcher
from functools import partial
from html import escape
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import gradio as gr
import numpy as np
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..decoding.options import SearchOptions
from ..decoding.translator import Translation
from ..hub.model_folder import short_names
from ..metrics.languages import is_written_leftward, language_name
from ..system.errors import describe, user_errors
from ..system.markdown import escaped
from .session import ENGINES, MOST_CHARACTERS, Answer, ServedModel, sentences_of

AT_ONCE = 2  # translations that run side by side; who comes later waits in the queue
MOST_WAITING = 32
MOST_BEAMS = 12
EXAMPLES = 5  # shown at most
MOST_TOKENS = 60  # of a side of a heat map; with more it cannot be read, and slows the browser
NARROWEST = 340  # pixels of a column; where two do not fit, they stand below one another
FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
STYLE = """
main { width: 100%; max-width: 1240px !important; margin-inline: auto !important; }
.alternatives * { word-break: normal; overflow-wrap: anywhere; }
.dark .alternatives * { color: var(--body-text-color) !important; }
.sentence button { text-align: start; }
"""
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
SCORE, LOG_PROBABILITY, DIFFERENT = "score", "log-probability", "unlike the best"
COLOURS = {SCORE: "#64748b", LOG_PROBABILITY: "#94a3b8", DIFFERENT: "#f59e0b"}


def build_page(models: Sequence[ServedModel]) -> gr.Blocks:
    """Build the page of some models, which stand beside the text, their details below it; [`serve`] starts it.

    Args:
        models: at least one; the title, the examples and the length penalty are those of the first.
    """
    names = short_names([model.name for model in models])
    languages = _shared_languages(models)
    title = " to ".join(map(language_name, languages)) if languages else "Translation"
    subtitle = ", ".join(f"{name} ({model.description.size})" for name, model in zip(names, models, strict=True))
    with gr.Blocks(title=f"{title} · {', '.join(names)}", analytics_enabled=False, fill_width=True) as page:
        gr.Markdown(f"# {escaped(title)}\n{escaped(subtitle)}")
        with gr.Row():
            with gr.Column(min_width=NARROWEST):
                text, clear, translate, settings = _controls(models, languages)
            if len(models) == 1:
                names = [language_name(languages[1]) if languages else "Translation"]
            rtl = languages is not None and is_written_leftward(languages[1])
            found = [part for name in names for part in _column(name, rtl)]
        with gr.Row():
            for answer in found[2::3]:
                with gr.Column(min_width=NARROWEST):
                    _show_details(answer, rtl)
        gr.on(
            [translate.click, text.submit],
            lambda *inputs: _translate(models, *inputs),
            [text, *settings],
            found,
            api_name="translate",
            show_progress="minimal",
            show_progress_on=found[::3],
            concurrency_limit=AT_ONCE,
        )
        clear.click(lambda: ["", *["", "", None] * len(models)], None, [text, *found], api_visibility="private")
    page.queue(max_size=MOST_WAITING)
    return page


class OwnRequests:
    """Refuses what the page does not ask for: uploads, and requests that other sites make in a visitor's browser.

    Args:
        hosts: names by which the page is asked for, and the only origins; None for any, behind a proxy for instance.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with 403, or hand the request on."""
        app: Any = self.app
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            asked = {urlsplit(f"//{headers.get('host', '')}").hostname, urlsplit(headers.get("origin", "")).hostname}
            is_foreign = self.hosts is not None and not asked <= {None, *self.hosts}
            if is_foreign or scope["path"].endswith("/upload"):
                app = PlainTextResponse("this page takes text from its own visitors alone", status_code=403)
        await app(scope, receive, send)


def serve(page: gr.Blocks, host: str | None = None, port: int | None = None) -> str:
    """Start the server of a page in the background and return the page's address.

    Args:
        host: address to listen on; default: GRADIO_SERVER_NAME, which the Hub sets, or else this machine alone.
        port: default: GRADIO_SERVER_PORT, or else the first free one from 7860 on.

    Raises:
        OSError: the port is taken.
    """
    is_local = (host or os.environ.get("GRADIO_SERVER_NAME") or THIS_MACHINE[0]) in THIS_MACHINE
    _, address, _ = page.launch(
        app_kwargs={"middleware": [Middleware(OwnRequests, hosts=THIS_MACHINE if is_local else None)]},
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        show_error=True,
        ssr_mode=False,
        run_history=False,
        footer_links=["api", "settings"],
        theme=gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=FONTS),
        css=STYLE,
    )
    return address


def _shared_languages(models: Sequence[ServedModel]) -> tuple[str, str] | None:
    """Source and target language, if all models state the same."""
    stated = {model.description.card.languages for model in models}
    return stated.pop() if len(stated) == 1 else None


def _controls(models: Sequence[ServedModel], languages: tuple[str, str] | None) -> tuple[Any, Any, Any, list[Any]]:
    """The box for the text, the two buttons, and the settings."""
    first = models[0].description
    text = gr.Textbox(
        label=language_name(languages[0]) if languages else "Source text",
        placeholder=f"Write {'text' if first.source_language else 'one sentence a line'}. Shift+Enter translates.",
        lines=5,
        max_lines=12,
        max_length=MOST_CHARACTERS,
        rtl=languages is not None and is_written_leftward(languages[0]),
        autofocus=True,
        elem_id="source",
    )
    with gr.Row():
        clear = gr.Button("Clear", min_width=100, scale=1)
        translate = gr.Button("Translate", variant="primary", min_width=140, scale=2, elem_id="translate")
    for example in first.card.examples[:EXAMPLES]:
        button = gr.Button(example, size="sm", elem_classes="example")
        button.click(partial(str, example), None, text, queue=False, show_progress="hidden", api_visibility="private")
    with gr.Accordion("Settings", open=False):
        settings = _settings(first.length_penalty, max(model.description.decoder_layers for model in models))
    return text, clear, translate, settings


def _settings(length_penalty: float, layers: int) -> list[Any]:
    """The controls of a search, in the order of the arguments of `_translate`."""
    longer = "Log-probabilities are divided by length to this power: higher prefers longer translations."
    layer = "The decoder layer of the heat map. CTranslate2 gives no attention."
    lowest, highest = min(0, length_penalty), max(2, length_penalty)
    return [
        gr.Slider(1, MOST_BEAMS, value=5, step=1, label="Beam size", info="1 is greedy search."),
        gr.Slider(lowest, highest, value=length_penalty, step=0.1, label="Length penalty", info=longer),
        gr.Radio(list(ENGINES), value="PyTorch", label="Backend", info="int8 is faster, and rounds."),
        gr.Slider(1, max(layers, 2), value=layers, step=1, label="Attention layer", info=layer, visible=layers > 1),
    ]


def _column(label: str, rtl: bool) -> list[Any]:
    """The column of a model: the box of the translation, the line below it, and the answer of which both are made."""
    with gr.Column(min_width=NARROWEST):
        box = gr.Textbox(
            label=label,
            placeholder="The translation appears here",
            lines=5,
            max_lines=12,
            rtl=rtl,
            buttons=["copy"],
            interactive=False,
            autoscroll=False,
            elem_classes="translation",
        )
        return [box, gr.Markdown(elem_classes="below"), gr.State()]


def _translate(
    models: Sequence[ServedModel], text: str, num_beams: float, length_penalty: float, engine: str, layer: float
) -> list[Any]:
    """Translate a text: for each model the translation, a line about it, and the answer with all details.

    A mistake that the visitor can mend is a message in the page; anything else is a bug, whose traceback goes to the
    log.
    """
    try:
        sentences = sentences_of(text or "", models[0].description.source_language)
        options = SearchOptions(num_beams=int(num_beams), nbest=int(num_beams), length_penalty=length_penalty)
    except (ValueError, ImportError) as error:
        gr.Warning(escape(str(error)), title="Not translated")
        return ["", "", None] * len(models)
    shown: list[Any] = []
    for model in models:
        try:
            answer = model.translate(sentences, options, engine, int(layer))
        except user_errors() as error:
            shown += ["", escaped(describe(error).replace(str(model.folder), model.name)), None]
        else:
            shown += [answer.text, summary(answer), answer]
    return shown


def summary(answer: Answer) -> str:
    """Time and tokens a second, and a word about sentences that are probably translated wrongly."""
    per_second = answer.tokens / answer.seconds if answer.seconds else 0.0
    line = f"{answer.seconds:.2f} s, {answer.tokens:,} tokens, {per_second:,.0f} tokens a second"
    if not answer.unusual:
        return line
    several = len(answer.unusual) > 1
    which = f"Sentence{'s' if several else ''} {', '.join(map(str, answer.unusual))} {'are' if several else 'is'}"
    if len(answer.sources) == 1:
        which = "This sentence is"
    return f"⚠ {which} probably unlike what the model was trained on, and translated wrongly.\n\n{line}"


def _show_details(state: gr.State, rtl: bool) -> None:
    """Show the best translations of each sentence, and the attention of the first, whenever the answer changes."""

    @gr.render(state, triggers=[state.change], show_progress="hidden")
    def details(answer: Answer | None) -> None:
        rows = list(zip(answer.sources, answer.translations, strict=True)) if answer else []
        for number, (sentence, found) in enumerate(rows):
            if not sentence:
                continue
            with gr.Accordion(sentence, open=number == 0, elem_classes="sentence"):
                gr.HighlightedText(
                    alternatives(found),
                    label="Best translations",
                    show_legend=True,
                    color_map=COLOURS,
                    rtl=rtl,
                    elem_classes="alternatives",
                )
                weights = found[0].attention
                if weights is not None and weights.size and max(weights.shape) <= MOST_TOKENS:
                    gr.Dataframe(
                        heat_map(found[0], weights),
                        label="Attention in percent, from each token of the translation (rows) to the source",
                        show_label=True,
                        interactive=False,
                        buttons=[],
                        pinned_columns=1,
                        max_height=900,
                        elem_classes="heat-map",
                    )


def alternatives(found: Sequence[Translation]) -> list[tuple[str, str | None]]:
    """Translations for HighlightedText, best first, a line each: its scores, then its words.

    Words that the best translation has not in that place are marked.
    """
    parts: list[tuple[str, str | None]] = []
    best = found[0].text.split()
    for one in found:
        parts += [("\n", None)] * bool(parts)
        parts += [(_number(one.score), SCORE), (_number(one.log_prob), LOG_PROBABILITY)]
        words = one.text.split()
        for kind, _, _, start, end in SequenceMatcher(None, best, words, autojunk=False).get_opcodes():
            run, label = " ".join(words[start:end]), None if kind == "equal" else DIFFERENT
            if run and label is None and parts[-1][1] is None:  # where the best translation has words in between
                parts[-1] = f"{parts[-1][0]} {run}", None
            elif run:
                parts.append((run, label))
    return parts


def _number(value: float) -> str:
    """Two decimals with a true minus sign; 0 has no sign."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def heat_map(translation: Translation, weights: np.ndarray) -> dict[str, Any]:
    """Attention [target tokens, source tokens] for Dataframe: percentages on a background that is as strong."""
    rows = _labels(translation.tokens)
    colour = "background: color-mix(in oklab, var(--primary-500) {:.0f}%, transparent)"
    percent = [[round(100 * float(weight)) for weight in row] for row in weights]
    return {
        "headers": ["", *_labels(translation.source_tokens)],
        "data": [[label, *row] for label, row in zip(rows, percent, strict=True)],
        "metadata": {"styling": [["", *map(colour.format, row)] for row in percent]},
    }


def _labels(tokens: list[str]) -> list[str]:
    """Tokens as the axes show them: a dot in front of those that go on with a word."""
    begins = [True, *(one.endswith(" ") or other.startswith(" ") for one, other in pairwise(tokens))]
    shown = [token.strip() or "␣" for token in tokens]
    return [token if begin else f"·{token}" for token, begin in zip(shown, begins, strict=True)]
