// Ranks the results of the search. Headings come first that contain the query, of which it is at least half.
// How-to guides come before other pages of the same rank, and pages for developers last.
function weight(page, kind) {
  const isForDevelopers = /^(adr\/|changelog|contributing|reference\/(interfaces|modules))/.test(page);
  const isGuide = /^howto\/(?!index|questions)/.test(page);
  return (kind === "title" ? 4 : 1) * (isForDevelopers ? 0.5 : isGuide ? 1.2 : 1);
}

var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) => weight(page, kind) * score,
  // Sphinx's own scores:
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
