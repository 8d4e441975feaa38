const find = document.querySelector(".find");
if (find) {
  const main = document.querySelector("main");
  const named = [...document.querySelectorAll("[data-name]")];
  const count = find.querySelector("output");
  find.hidden = false;
  find.querySelector("input").addEventListener("input", event => {
    const words = event.target.value.toLowerCase().trim().split(/\s+/);
    for (const one of named) one.hidden = !words.every(word => one.dataset.name.toLowerCase().includes(word));
    main.classList.toggle("finding-names", words[0] !== "");
    count.textContent = words[0] ? `${named.filter(one => one.matches(".heat li") && !one.hidden).length} found` : "";
  });
}
