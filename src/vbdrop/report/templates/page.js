"use strict";
// The slider of each curve: moves the marker, and says what the network is there.
for (const figure of document.querySelectorAll(".sweep")) {
  const points = JSON.parse(figure.querySelector("script").textContent);
  const input = figure.querySelector("input");
  const marker = figure.querySelector(".marker");
  const show = () => {
    const point = points[Number(input.value)];
    for (const part of figure.querySelectorAll("[data-show]")) part.textContent = point[part.dataset.show];
    const said = [...figure.querySelectorAll("output span")].slice(0, 2).map((part) => part.textContent);
    input.setAttribute("aria-valuetext", `${point.threshold}: ${said.join(", ")}`);
    marker.setAttribute("cx", point.x);
    marker.setAttribute("cy", point.y);
  };
  input.addEventListener("input", show);
  show();
}
