// Lessons come first in what a search finds, then the laboratory and the claims, and the names of functions last.
var Scorer = {
  score: ([page, , , , score]) => {
    if (/^notebooks\/(?!laboratory)/.test(page)) return score + 40;
    return page === "book/api" ? score - 40 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
