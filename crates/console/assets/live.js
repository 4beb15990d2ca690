// Keeps a page current: the server says that something changed, and the page is read again. Everything works without
// this file.
"use strict";
(() => {
  const main = document.getElementById("main");
  // What was done is said once, not again after a reload.
  const here = new URL(location.href);
  if (here.searchParams.has("done")) {
    here.searchParams.delete("done");
    history.replaceState(null, "", here);
  }
  const address = main && main.dataset.live;
  if (!address) return;
  const sign = document.getElementById("live-state");
  // How long what was done stays on the page, in milliseconds: the page is read again before anyone can read it.
  const DONE_FOR = 60_000;
  // How long after its release a click may arrive, in milliseconds: a touch screen sends it later than a mouse.
  const CLICK_WITHIN = 300;
  let busy = false;
  let due = false;
  let pressed = false;

  const say = (state) => {
    if (!sign || sign.textContent === sign.dataset[state]) return;
    sign.textContent = sign.dataset[state];
    sign.className = "tag " + state;
  };

  // The page stays as it is while its user types, selects or clicks: a link that is replaced between press and release
  // gets no click.
  const inUse = () => {
    const at = document.activeElement;
    const types = at && main.contains(at) && ["INPUT", "SELECT", "TEXTAREA"].includes(at.tagName);
    const selection = getSelection();
    const selects = selection && !selection.isCollapsed && main.contains(selection.anchorNode);
    return pressed || types || selects;
  };

  const replace = (text) => {
    const next = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (!next) return;
    const done = main.querySelector("p.done");
    if (done && performance.now() < DONE_FOR) next.querySelector("h1").after(done.cloneNode(true));
    if (next.innerHTML === main.innerHTML) return;
    const at = document.activeElement;
    const link = at && main.contains(at) ? at.getAttribute("href") : null;
    const sideways = [...main.querySelectorAll(".scroll")].map((region) => region.scrollLeft);
    main.replaceChildren(...next.childNodes);
    main.querySelectorAll(".scroll").forEach((region, index) => {
      region.scrollLeft = sideways[index] || 0;
    });
    if (link !== null) {
      const same = [...main.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === link);
      if (same) same.focus({ preventScroll: true });
    }
  };

  const refresh = async () => {
    due = true;
    if (busy || document.hidden || inUse()) return;
    busy = true;
    due = false;
    try {
      const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
      const text = await answer.text();
      // Its user may have begun while the answer was under way.
      if (inUse()) due = true;
      else if (answer.ok) replace(text);
      else if (answer.status === 401) location.reload();
    } catch {
      say("late");
    } finally {
      busy = false;
      if (due) setTimeout(refresh, 1000);
    }
  };
  const refreshIfDue = () => { if (due) refresh(); };

  // A browser opens six connections to a server, and each stream keeps one: a page in the background has none. The first
  // event of a stream comes at once, so a page that comes to the front is read again.
  let events = null;
  const connect = () => {
    if (events) return;
    events = new EventSource(address);
    events.addEventListener("open", () => say("on"));
    events.addEventListener("error", () => {
      say(events && events.readyState !== EventSource.CLOSED ? "late" : "off");
    });
    events.addEventListener("changed", refresh);
  };
  const disconnect = () => {
    if (events) events.close();
    events = null;
    say("off");
  };
  const follow = () => (document.hidden ? disconnect() : connect());
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", follow);
  main.addEventListener("focusout", () => setTimeout(refreshIfDue, 0));
  main.addEventListener("pointerdown", (event) => { pressed = event.button === 0; });
  for (const end of ["pointerup", "pointercancel", "dragend", "contextmenu", "blur"]) {
    addEventListener(end, () => setTimeout(() => {
      pressed = false;
      refreshIfDue();
    }, CLICK_WITHIN));
  }
  follow();
})();
