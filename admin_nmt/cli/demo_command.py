"""The command demo: a page in the browser."""

from typing import Annotated

import typer

from .options import Device, check_device, quiet, say


def demo(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Folders or Hub repositories; several stand side by side.", show_default=False
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in, without a password.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="By default the first free one from 7860 on.")
    ] = None,
    device: Device = None,
) -> None:
    """Translate in the browser.

    A page with the translation, the best alternatives with their scores, the attention as a heat map, and time. Nothing
    leaves this machine. Needs Gradio: pip install "admin_nmt[demo]". Ctrl-C stops it.

    \b
    admin-nmt demo runs/phrasebook/standard
    admin-nmt demo runs/admin/standard runs/pre_ln/standard --port 8000
    """
    try:
        from ..demo.page import build_page, serve
    except ModuleNotFoundError as error:
        if error.name != "gradio":
            raise
        raise ImportError('the page needs Gradio: pip install "admin_nmt[demo]"') from error
    from threading import Event

    from ..demo.session import ServedModel

    check_device(device)
    quiet()
    page = build_page([ServedModel(model, device) for model in models])
    say(f"{serve(page, host, port)} shows the page; Ctrl-C stops it")
    try:
        Event().wait()
    except KeyboardInterrupt:
        page.close(verbose=False)
