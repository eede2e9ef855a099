// Before anything is painted, lest a dark room is lit up for a moment.
(function () {
  var chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch (e) { /* no storage: as the system has it */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
