for (const button of navigator.clipboard ? document.querySelectorAll("button.copy") : []) {
  const code = button.parentElement.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", () => navigator.clipboard.writeText(code.textContent.trim()).then(
    () => { button.classList.add("done"); setTimeout(() => button.classList.remove("done"), 2000); },
    () => getSelection().selectAllChildren(code)));
}
