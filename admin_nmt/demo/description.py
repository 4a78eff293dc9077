"""Description of a model for the page and the Space, read from its folder without loading the weights."""

from dataclasses import dataclass
from pathlib import Path

from ..hub.cards import CardFacts, read_card
from ..hub.model_folder import generation_defaults, read_config
from ..hub.model_info import count_parameters, model_languages
from ..metrics.languages import language_name


@dataclass(frozen=True)
class Description:
    """A model in a few words.

    Args:
        size: a phrase such as "12-2 layers, 2.1M parameters".
        decoder_layers: number of layers whose attention can be shown.
        source_language: code of the source, by whose rules text is split into sentences; None where nothing tells.
        length_penalty: of the model's own search settings.
        card: languages, licence and example sentences that the model's card states.
    """

    size: str
    decoder_layers: int
    source_language: str | None
    length_penalty: float
    card: CardFacts

    @property
    def title(self) -> str | None:
        """Names of the languages, as "English to German"; None where the card does not state them."""
        return " to ".join(map(language_name, self.card.languages)) if self.card.languages else None


def describe_model(folder: Path) -> Description:
    """Read the description of a model folder.

    Raises:
        ValueError: the folder is no model, or its card's header cannot be read.
    """
    config = read_config(folder)
    parameters = count_parameters(config)
    count = f"{parameters / 1e6:,.1f}M" if parameters >= 1e5 else f"{parameters:,}"
    length_penalty = generation_defaults(folder, config).length_penalty
    return Description(
        size=f"{config.encoder_layers}-{config.decoder_layers} layers, {count} parameters",
        decoder_layers=config.decoder_layers,
        source_language=model_languages(folder)[0],
        length_penalty=1.0 if length_penalty is None else length_penalty,
        card=read_card(folder),
    )
