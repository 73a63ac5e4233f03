"use strict";
// Code that scrolls sideways can be reached, and so scrolled, by keyboard.
const focusable = () => {
  for (const code of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    const scrolls = code.scrollWidth > code.clientWidth;
    if (scrolls) code.tabIndex = 0;
    else code.removeAttribute("tabindex");
  }
};
addEventListener("load", focusable);
addEventListener("resize", focusable);

document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
