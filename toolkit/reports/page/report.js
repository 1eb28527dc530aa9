"use strict";
(function () {
  // Colours: as the system, light, dark; kept where the browser allows it.
  var root = document.documentElement, button = document.getElementById("theme");
  var modes = ["system", "light", "dark"], signs = { system: "◐", light: "☀", dark: "☾" };
  var mode = "system";
  try { mode = localStorage.getItem("toolkit-report-theme") || "system"; } catch (e) { /* not allowed for local files */ }
  function show() {
    if (mode === "system") root.removeAttribute("data-theme"); else root.setAttribute("data-theme", mode);
    button.textContent = signs[mode];
    button.setAttribute("aria-label", "Colours: " + (mode === "system" ? "as the system" : mode));
    button.title = button.getAttribute("aria-label");
  }
  button.hidden = false;
  button.addEventListener("click", function () {
    mode = modes[(modes.indexOf(mode) + 1) % modes.length];
    try { localStorage.setItem("toolkit-report-theme", mode); } catch (e) { /* not allowed for local files */ }
    show();
  });
  show();

  // Highlight strategies: the others' colours fade in all figures of the same replay.
  document.querySelectorAll(".replay").forEach(function (replay) {
    var chips = Array.prototype.slice.call(replay.querySelectorAll(".chip"));
    var pinned = new Set(), charts = replay.querySelectorAll(".figures");
    function paint(peek) {
      var chosen = peek ? new Set([peek]) : pinned;
      chips.forEach(function (chip) {
        var role = chip.dataset.role, faded = chosen.size && !chosen.has(role);
        charts.forEach(function (one) {
          if (faded) one.style.setProperty("--" + role, "color-mix(in srgb, var(--axis) 22%, transparent)");
          else one.style.removeProperty("--" + role);
        });
      });
    }
    chips.forEach(function (chip) {
      var role = chip.dataset.role;
      chip.addEventListener("mouseenter", function () { paint(role); });
      chip.addEventListener("mouseleave", function () { paint(null); });
      chip.addEventListener("click", function () {
        if (pinned.has(role)) pinned.delete(role); else pinned.add(role);
        chip.setAttribute("aria-pressed", String(pinned.has(role)));
        paint(null);
      });
    });
  });

  // Tables that can be sorted by a click or a key on the head of a column.
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var heads = table.tHead.rows[0].cells, body = table.tBodies[0];
    Array.prototype.forEach.call(heads, function (head, column) {
      if (head.hasAttribute("data-fixed") || !head.textContent.trim()) return;
      var control = document.createElement("button");
      control.type = "button";
      while (head.firstChild) control.appendChild(head.firstChild);
      head.appendChild(control);
      control.addEventListener("click", function () {
        var up = head.getAttribute("aria-sort") !== "ascending";
        Array.prototype.forEach.call(heads, function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        var rows = Array.prototype.slice.call(body.rows).map(function (row, i) {
          var cell = row.cells[column], value = cell.getAttribute("data-v");
          var known = value === null ? cell.textContent.trim() : value === "" ? null : Number(value);
          return { row: row, value: known, i: i };
        });
        rows.sort(function (a, b) {
          if (a.value === null || b.value === null) return (a.value === null) - (b.value === null) || a.i - b.i;
          var order = typeof a.value === "number" ? a.value - b.value : a.value.localeCompare(b.value);
          return (up ? order : -order) || a.i - b.i;
        });
        rows.forEach(function (entry) { body.appendChild(entry.row); });
      });
    });
  });

  // Print everything, folded or not.
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  });
})();
