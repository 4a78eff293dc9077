"""Prefixes of translations, and texts that these may not contain, for both searches."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor
from transformers import LogitsProcessor

NO_TOKEN = -1


def padded_prefixes(prefixes: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Prefixes of token ids as a tensor [B, longest], which continues with `NO_TOKEN`."""
    longest = max(map(len, prefixes))
    rows = [[*prefix, *[NO_TOKEN] * (longest - len(prefix))] for prefix in prefixes]
    return torch.tensor(rows, dtype=torch.long, device=device).view(len(prefixes), longest)


def force(scores: Tensor, tokens: Tensor, values: Tensor) -> None:
    """Leave each row of `scores`, [N, V], its token of `tokens`, [N], alone, with a score of `values`, [N]."""
    rows = (tokens != NO_TOKEN).nonzero().flatten()
    scores[rows] = -torch.inf
    scores[rows, tokens[rows]] = values[rows]


class ForcedPrefixes(LogitsProcessor):
    """Each hypothesis begins with the prefix of its sentence, and is scored as if it had chosen it.

    Args:
        prefixes: of each sentence, [B, P], as `padded_prefixes` gives them.
    """

    def __init__(self, prefixes: Tensor) -> None:
        self.prefixes = prefixes

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        length = input_ids.shape[1] - 1  # without the start
        if length < self.prefixes.shape[1]:
            tokens = self.prefixes[:, length].repeat_interleave(len(scores) // len(self.prefixes))
            values = scores.gather(1, tokens.clamp(min=0)[:, None])[:, 0]
            force(scores, tokens, values.nan_to_num(neginf=0.0))  # a prefix may hold what is banned otherwise
        return scores


class ForbiddenTexts(LogitsProcessor):
    """Bans words and phrases however they are cut into pieces: no translation contains one as whole words.

    The last piece of a forbidden text is banned wherever the pieces before it spell its beginning, which stands where a
    word begins. So a longer word may not begin with these very pieces either ("Haus" + "boot"); in other pieces it may.

    All ways to cut the texts are a graph: node i of a text is reached where a hypothesis ends with its first i
    characters, and a token that spells those from i to j leads from node i to node j.

    Args:
        texts: words and phrases as the vocabulary spells them; a space tells where a word begins, or ends.
        pieces: how each token of the target vocabulary is spelt, "" for a special one.
        inside: whether a word would go on after each token of the vocabulary, if a letter came without a space.

    Raises:
        ValueError: the vocabulary cannot spell a text.
    """

    def __init__(self, texts: Sequence[str], pieces: Sequence[str], inside: Sequence[bool]) -> None:
        self.inside = torch.tensor(inside)
        self.starts: list[tuple[int, bool]] = []  # first node of each text, and whether it may be inside a word
        self.edges: list[tuple[int, int, int]] = []  # from a node, to another, token
        self.last: list[tuple[int, int]] = []  # from a node, the token that would complete a text
        self.nodes, self.longest = 0, max(map(len, texts))
        numbers: dict[str, list[int]] = {}
        for number, piece in enumerate(pieces):
            numbers.setdefault(piece, []).append(number)
        for text in texts:
            self._add(text, numbers)

    def _add(self, text: str, numbers: dict[str, list[int]]) -> None:
        first, size, complete = self.nodes, len(text), len(self.last)
        for start, end in combinations(range(size + 1), 2):
            for token in numbers.get(text[start:end], ()):
                if end < size:
                    self.edges.append((first + start, first + end, token))
                else:
                    self.last.append((first + start, token))
        if len(self.last) == complete:
            raise ValueError(f"{text!r} cannot be forbidden: the target vocabulary cannot spell it")
        self.starts.append((first, not text[0].isalnum()))
        self.nodes += size

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        last_from, last_token = torch.tensor(self.last, device=scores.device).T
        rows, which = self._reached(input_ids)[:, last_from].nonzero(as_tuple=True)
        scores[rows, last_token[which]] = -torch.inf
        return scores

    def _reached(self, input_ids: Tensor) -> Tensor:
        """The nodes that each hypothesis, [N, t] with the decoder start, has reached, [N, nodes]."""
        device = input_ids.device
        inside, (starts, anywhere) = self.inside.to(device), torch.tensor(self.starts, device=device).T
        origin, target, token = torch.tensor(self.edges or [(0, 0, -1)], device=device).T
        recent = input_ids[:, -self.longest - 1 :]
        reached = torch.zeros(len(recent), self.nodes, dtype=torch.int32, device=device)
        for step in range(recent.shape[1]):
            taken = (reached[:, origin] > 0) & (recent[:, step, None] == token)
            reached = torch.zeros_like(reached).index_add_(1, target, taken.int())
            reached[:, starts] = (~inside[recent[:, step, None]] | (anywhere > 0)).int()
        return reached > 0
