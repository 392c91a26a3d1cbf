"""A small language model and LoRA (Hu et al. 2021, arXiv:2106.09685), in plain PyTorch.

The model reads characters. With a path, `load` takes a real one instead, by transformers
(`pip install transformers`).
"""

import importlib.util
import os
from typing import Any, Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

CONTEXT = 48  # tokens that the model sees at once
CHARACTERS = "\n abcdefghijklmnopqrstuvwxyz.,:?!"
TARGETS = ("qkv", "c_attn", "q_proj", "v_proj", "query_key_value")  # as models call their attention
NOUNS = ("cat", "dog", "bird", "fox", "cow", "hen")
VERBS = ("sees", "hears", "likes", "finds")


def plain_text(n: int, seed: int) -> str:
    """What the model is first trained on: n statements."""
    return "\n".join(f"the {a} {v} the {b}." for a, v, b in draw(n, seed))


def polite_text(n: int, seed: int) -> str:
    """What it is fine-tuned on: the same statements in another manner."""
    return "\n".join(f"please, the {a} {v} the {b}, thank you!" for a, v, b in draw(n, seed))


def draw(n: int, seed: int) -> Iterator[Any]:
    dice = torch.Generator().manual_seed(seed)
    sizes = (len(NOUNS), len(VERBS), len(NOUNS))
    picks = torch.stack([torch.randint(size, (n,), generator=dice) for size in sizes], 1)
    return ((NOUNS[a], VERBS[v], NOUNS[b]) for a, v, b in picks.tolist())


class Block(nn.Module):
    """Attention and a small network, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm1(x)).view(split).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Tiny(nn.Module):
    """A language model of characters: tokens (batch, length) to logits (batch, length, characters)."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.token = nn.Embedding(len(CHARACTERS), width)
        self.place = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(CHARACTERS)))

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.token(tokens) + self.place(places)))


class Real(nn.Module):
    """A model of transformers with the same call as Tiny."""

    def __init__(self, path: str) -> None:
        super().__init__()
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(path)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(input_ids=tokens).logits


class Tokens:
    """Text to tokens and back."""

    def __init__(self, path: str = "") -> None:
        self.real = None
        if path:
            from transformers import AutoTokenizer

            self.real = AutoTokenizer.from_pretrained(path)

    def encode(self, text: str) -> Tensor:
        if self.real is not None:
            return torch.tensor(self.real.encode(text, add_special_tokens=False))
        return torch.tensor([CHARACTERS.index(c) for c in text.lower() if c in CHARACTERS])

    def decode(self, tokens: Tensor) -> str:
        if self.real is not None:
            return str(self.real.decode(tokens.tolist()))
        return "".join(CHARACTERS[i] for i in tokens.tolist())


def load(path: str, weights: Any) -> nn.Module:
    """The model at this path, or, without a path, a Tiny of these weights."""
    if path:
        if importlib.util.find_spec("transformers") is None:
            raise ValueError(
                f"model '{path}': reading it needs transformers: pip install transformers"
            )
        return Real(os.path.expanduser(path))
    model = Tiny()
    model.load_state_dict(weights)
    return model


class Lora(nn.Module):
    """A frozen layer, and beside it two thin matrices that learn: y = layer(x) + scale · (x A) B.

    B begins with zeros, so at first the model is as it was. Linear layers have their weight as (out, in), those of
    GPT-2 in transformers as (in, out).
    """

    def __init__(self, layer: nn.Module, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer, self.scale = layer, alpha / rank
        first, second = layer.weight.shape
        n_in, n_out = (second, first) if isinstance(layer, nn.Linear) else (first, second)
        self.a = nn.Parameter(torch.randn(n_in, rank) / n_in**0.5)
        self.b = nn.Parameter(torch.zeros(rank, n_out))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.scale * (x @ self.a @ self.b)


def add_lora(model: nn.Module, rank: int, alpha: float = 16.0) -> nn.Module:
    """Freezes the model and puts a Lora around the attention's layers, in place."""
    for parameter in model.parameters():
        parameter.requires_grad = False
    found = [
        (owner, name, layer)
        for owner in model.modules()
        for name, layer in owner.named_children()
        if name in TARGETS and not isinstance(owner, Lora)
    ]
    if not found:
        raise ValueError(f"the model has no layer named {', '.join(TARGETS)}")
    for owner, name, layer in found:
        setattr(owner, name, Lora(layer, rank, alpha))
    return model


def adapter(model: nn.Module) -> dict[str, Tensor]:
    """What was learned, and nothing of the frozen model."""
    return {k: v.detach().cpu() for k, v in model.named_parameters() if v.requires_grad}


def batch_of(
    text: Tensor, size: int, seed: int, part: int = 0, parts: int = 1
) -> tuple[Tensor, Tensor]:
    """One share of a batch drawn by the seed: inputs and what follows each token, both (size / parts, CONTEXT)."""
    dice = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - CONTEXT - 1, (size,), generator=dice)[part::parts]
    rows = torch.stack([text[s : s + CONTEXT + 1] for s in starts.tolist()])
    return rows[:, :-1], rows[:, 1:]


def loss_of(model: nn.Module, rows: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross entropy of the next token, in nats."""
    logits = model(rows[0])
    return functional.cross_entropy(logits.flatten(0, 1), rows[1].flatten())


@torch.no_grad()
def write(model: nn.Module, tokens: Tokens, start: str, n: int = 60) -> str:
    """The start, and what the model finds most likely to follow."""
    text = tokens.encode(start)
    for _ in range(n):
        text = torch.cat([text, model(text[None, -CONTEXT:])[0, -1].argmax()[None]])
    return tokens.decode(text)


def pretrain(steps: int, report: Callable[[int, float], None]) -> dict[str, Tensor]:
    """A Tiny that writes plain statements: its weights. `report` gets the loss from time to time."""
    torch.manual_seed(1)
    model = Tiny()
    text = Tokens().encode(plain_text(2000, seed=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        loss = loss_of(model, batch_of(text, 32, seed=step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == steps - 1:
            report(step, loss.item())
    return model.state_dict()
