"""What reports have in common: advice and rates that were tried, and one file of HTML that needs no other."""

from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from html import escape
from pathlib import Path

from torch import nn

from gnlib.advice.suggestions import Advice, Suggestion
from gnlib.diagnosis.pictures import Drawing, picture
from gnlib.diagnosis.rates import StableRate
from gnlib.files import write
from gnlib.refused import Refused
from gnlib.text import Line, Page

# Blue, vermilion and green of Okabe and Ito, told apart by all eyes; lighter ones on a dark page.
STYLE = """
:root { color-scheme: light dark; --series-0: #0072b2; --series-1: #c75000; --series-2: #00805d; --line: #ccc; }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color: #1a1a1a;
  background: #fff; }
h1 { font-size: 1.4rem; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
figure { margin: 0; } figcaption { font-size: .875rem; } svg { width: 100%; height: auto; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.5rem;
  margin: 1.5rem 0; }
.wide { overflow-x: auto; } .wide td, .wide th { overflow-wrap: normal; white-space: nowrap; }
@media (prefers-color-scheme: dark) {
  :root { --series-0: #56b4e9; --series-1: #f0a030; --series-2: #35d0a5; --line: #555; }
  body { color: #e8e8e8; background: #161616; } }
@media (max-width: 40rem) { .lines th, .lines td { display: block; border: 0; padding: 0; }
  .lines tr { display: block; padding: .5rem 0; border-bottom: 1px solid var(--line); } }
"""


class Advised(Page, ABC):
    """A page with advice, and with rates of which each was tried."""

    rates: tuple[StableRate, ...]  # the largest stable ones on the quadratic model
    # of each the first of its half, its quarter and so on at which ten real steps stay low; empty without targets
    safe: tuple[float | None, ...]
    advice: Advice | None  # what to change, tried by real steps; None without targets

    @property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """At most three changes that were faster by a fifth when they were tried, the best first."""
        return () if self.advice is None else self.advice.suggestions

    def apply(self, i: int = 0) -> nn.Module:
        """Return the network with suggestion i made, as :meth:`gnlib.advice.suggestions.Advice.apply` does."""
        if self.advice is None:
            raise Refused("no-targets", "Nothing was tried, as y is missing; pass the targets, and ask again.")
        return self.advice.apply(i)

    def _first(self) -> list[Line]:
        """Return what has to be known before anything else."""
        return [] if self.advice is None else [line for line in self.advice.remarks if line.name == "targets"]

    def _tries(self) -> list[Line]:
        if self.advice is None:
            return [Line("try", "nothing was tried", "a change is tried by training, which needs targets: pass y")]
        others = [line for line in self.advice.remarks if line.name != "targets"]
        return [*self.advice.tries(), *self.advice.omissions(), *others, self.advice.cost]

    def _of_rates(self, more: Callable[[StableRate], str]) -> Iterator[Line]:
        """Yield a line for each rate, with what else there is to say of it on the quadratic model."""
        for i, rate in enumerate(self.rates):
            model = f"the quadratic model is stable below {rate.rate:.3g}{more(rate)}"
            safe = self.safe[i] if self.safe else None
            if safe is None:
                why = "no rate is safe for ten real steps" if self.safe else "no rate was tried"
                yield Line(rate.optimizer, why, model)
            else:
                yield Line(rate.optimizer, f"take {safe:.2g}", f"ten real steps at it do not explode; {model}")


def page(
    title: str, lines: Iterable[Line], drawings: Iterable[Drawing], tables: Iterable[str], path: str | Path | None
) -> str:
    """Return a page of lines, pictures and further tables, and write it to a file if there is a path."""
    rows = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td><td>{escape(c)}</td></tr>" for a, b, c in lines)
    figures = "\n".join(picture(*drawing) for drawing in drawings)
    html = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<table class="lines">{rows}</table>\n<div class="figures">{figures}</div>\n'
        + "".join(f'<div class="wide">{table}</div>\n' for table in tables)
        + "</body>\n</html>\n"
    )
    if path is not None:
        write(Path(path), html)
    return html
