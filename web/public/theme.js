// Before anything is painted, lest a dark room is lit up for a moment.
(function () {
  var chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch (e) { /* no storage: as the system has it */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();

// What an incident's page is going to ask for, while its code is still on the way.
(function () {
  var incident = /^\/incidents\/([0-9a-f-]{36})$/.exec(location.pathname);
  if (!incident) return;
  var ahead = document.createElement("link");
  ahead.rel = "preload";
  ahead.as = "fetch";
  ahead.crossOrigin = "anonymous";
  ahead.href = "/api/v1/incidents/" + incident[1];
  document.head.appendChild(ahead);
})();
