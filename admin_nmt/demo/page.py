"""The page in the browser: Gradio's components around the functions of `session` and `markup`.

Nothing is loaded from other sites, nothing is sent to one, and what visitors write is not kept.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from ..metrics.languages import is_written_leftward, language_name
from ..system.errors import describe, user_errors
from . import markup
from .session import ENGINES, MOST_BEAMS, MOST_CHARACTERS, ServedModel, Settings, display_names, sentences_of

STYLE = Path(__file__).with_name("page.css")
AT_ONCE = 2  # translations that run side by side; who comes later waits in the queue
MOST_WAITING = 32
EXAMPLES = 5  # shown at most
NARROWEST = 340  # pixels of a column; where two do not fit, they stand below one another
FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
MONO_FONTS = ("ui-monospace", "Consolas", "monospace")


def build_page(models: Sequence[ServedModel]) -> gr.Blocks:
    """The page of some models, which is then started by [`serve`].

    One model stands beside the text, several stand side by side below it.

    Args:
        models: at least one; the title, the examples and the length penalty are those of the first.
    """
    names = display_names([model.name for model in models])
    languages = _shared_languages(models)
    title = " to ".join(map(language_name, languages)) if languages else "Translation"
    subtitle = ", ".join(f"{name} ({model.facts.size})" for name, model in zip(names, models, strict=True))
    with gr.Blocks(title=f"{title} · {', '.join(names)}", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(markup.heading(title, subtitle), apply_default_css=False)
        with gr.Row():
            with gr.Column(min_width=NARROWEST):
                text, buttons, message, settings = _controls(models, languages)
            if len(models) == 1:
                label = language_name(languages[1]) if languages else "Translation"
                with gr.Column(min_width=NARROWEST):
                    found = [*_translation(label, languages)]
        if len(models) == 1:
            found.append(_details())
        else:
            with gr.Row():
                found = [part for name in names for part in _column(name, languages)]
        gr.on(
            [buttons[1].click, text.submit],
            lambda *inputs: _translate(models, *inputs),
            [text, *settings],
            [message, *found],
            api_name="translate",
            show_progress="minimal",
            show_progress_on=found[::3],
            concurrency_limit=AT_ONCE,
        )
        buttons[0].add([text, message, *found])
    page.queue(max_size=MOST_WAITING)
    return page


def serve(page: gr.Blocks, host: str | None = None, port: int | None = None) -> str:
    """Starts the server of a page in the background and returns the page's address.

    Args:
        host: address to listen on; default: GRADIO_SERVER_NAME, which the Hub sets, or else this machine alone.
        port: default: GRADIO_SERVER_PORT, or else the first free one from 7860 on.

    Raises:
        OSError: the port is taken.
    """
    theme = gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=MONO_FONTS)
    try:
        _, address, _ = page.launch(
            server_name=host,
            server_port=port,
            prevent_thread_lock=True,
            quiet=True,
            share=False,
            show_error=True,
            ssr_mode=False,
            run_history=False,
            footer_links=["api", "settings"],
            theme=theme,
            head=f"<style>{STYLE.read_text(encoding='utf-8')}</style>",  # as `css` it would lose its @container rules
        )
    except OSError as error:
        if port is None:
            raise
        raise OSError(f"port {port}: something else listens there, or it may not be used; choose another") from error
    return address


def _shared_languages(models: Sequence[ServedModel]) -> tuple[str, str] | None:
    """Source and target language, if all models state the same."""
    stated = {model.facts.languages for model in models}
    return stated.pop() if len(stated) == 1 else None


def _controls(
    models: Sequence[ServedModel], languages: tuple[str, str] | None
) -> tuple[Any, list[Any], Any, list[Any]]:
    """The box for the text, the buttons, the place of messages, and the settings."""
    facts = models[0].facts
    text = gr.Textbox(
        label=language_name(languages[0]) if languages else "Source text",
        placeholder=f"Write {'text' if facts.source_language else 'one sentence a line'}. Shift+Enter translates.",
        lines=5,
        max_lines=12,
        max_length=MOST_CHARACTERS,
        rtl=languages is not None and is_written_leftward(languages[0]),
        autofocus=True,
        elem_id="source",
    )
    with gr.Row():
        clear = gr.ClearButton(value="Clear", api_visibility="private", min_width=100, scale=1)
        translate = gr.Button("Translate", variant="primary", min_width=140, scale=2, elem_id="translate")
    message = gr.HTML(elem_classes="nmt-message", apply_default_css=False)
    for example in facts.examples[:EXAMPLES]:
        button = gr.Button(example, size="sm", elem_classes="nmt-example")
        button.click(partial(str, example), None, text, queue=False, show_progress="hidden", api_visibility="private")
    with gr.Accordion("Settings", open=False):
        settings = _settings(facts.length_penalty, max(model.facts.decoder_layers for model in models))
    return text, [clear, translate], message, settings


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


def _column(name: str, languages: tuple[str, str] | None) -> list[Any]:
    """What one of several models says, in a column."""
    with gr.Column(min_width=NARROWEST):
        return [*_translation(name, languages), _details()]


def _translation(label: str, languages: tuple[str, str] | None) -> tuple[Any, Any]:
    """The box of the translation, and the line below it."""
    box = gr.Textbox(
        label=label,
        placeholder="The translation appears here",
        lines=5,
        max_lines=12,
        rtl=languages is not None and is_written_leftward(languages[1]),
        buttons=["copy"],
        interactive=False,
        autoscroll=False,
        elem_classes="nmt-translation",
    )
    return box, gr.HTML(elem_classes="nmt-below", apply_default_css=False)


def _details() -> Any:
    return gr.HTML(elem_classes="nmt-details", apply_default_css=False)


def _translate(
    models: Sequence[ServedModel], text: str, num_beams: float, length_penalty: float, engine: str, layer: float
) -> list[str]:
    """What the page shows: a message, and for each model the translation, what it took, and the details.

    What the visitor can mend is said in the page; anything else is a bug, whose traceback goes to the log.
    """
    empty = ["", "", ""] * len(models)
    try:
        sentences = sentences_of(text or "", models[0].facts.source_language)
        settings = Settings(int(num_beams), float(length_penalty), engine, int(layer))
    except ValueError as error:
        return [markup.notice(str(error)), *empty]
    shown = []
    for model in models:
        try:
            answer = model.translate(sentences, settings)
        except user_errors() as error:
            shown += ["", markup.notice(describe(error).replace(str(model.folder), model.name)), ""]
        else:
            below = markup.warning(answer, sentences) + markup.speed(answer)
            shown += [answer.text, below, markup.details(answer, sentences)]
    return ["", *shown]
