"use strict";
(function () {
  // While the report is followed: reload it, and restore the reader's place.
  var key = "toolkit-report-place:" + location.pathname, kept = null;
  var folds = Array.prototype.slice.call(document.querySelectorAll("details"));
  try {
    kept = JSON.parse(sessionStorage.getItem(key));
    sessionStorage.removeItem(key);
  } catch (e) { /* not allowed for local files: the browser keeps the place itself */ }
  if (kept) {
    folds.forEach(function (fold, i) { fold.open = kept.open.indexOf(i) >= 0; });
    window.scrollTo(kept.x, kept.y);
  }
  setInterval(function () {
    if (document.hidden || String(window.getSelection())) return;
    var open = folds.map(function (fold, i) { return fold.open ? i : -1; });
    try {
      sessionStorage.setItem(key, JSON.stringify({ x: window.scrollX, y: window.scrollY, open: open }));
    } catch (e) { /* as above */ }
    location.reload();
  }, EVERY_MS);
})();
