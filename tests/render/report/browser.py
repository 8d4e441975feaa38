"""A page in a real browser: its console output, its network requests, and its tree."""

import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import find_tool

LIMIT_S = 240  # the machine may be busy
QUIET = (
    "--headless=new",
    "--no-sandbox",  # which root cannot have
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--virtual-time-budget=5000",
    "--enable-logging=stderr",
    "--proxy-server=http://127.0.0.1:9",  # nothing listens there: requests get no answer, and are recorded
    "--proxy-bypass-list=<-loopback>",
)


@dataclass(frozen=True, slots=True)
class Seen:
    """`console`: all of its output. `requests`: every address except file: and data: that the page requested."""

    tree: str
    console: tuple[str, ...]
    requests: tuple[str, ...]


def browse(page: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> Seen:
    """Open the page from a file, as a user does."""
    with TemporaryDirectory(prefix="aligntool-browser-") as name:
        folder = Path(name)
        file, log = folder / "page.html", folder / "net.json"
        file.write_text(page)
        scheme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
        words = (
            find_tool("chromium") or "chromium", *QUIET, *scheme, f"--window-size={width},{height}",
            f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom", file.as_uri(),
        )  # fmt: skip
        output, errors = _run(words, folder)
        console = tuple(line for line in errors.splitlines() if "CONSOLE" in line)
        return Seen(output, console, tuple(_requests(log)))


def _run(words: tuple[str, ...], folder: Path) -> tuple[str, str]:
    """Run a browser, which is several programs: they get a session of their own, and end together."""
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"HOME": str(folder)}, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            output, errors = child.communicate(timeout=LIMIT_S)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    assert child.returncode == 0, errors
    assert output.startswith("<!DOCTYPE html>"), errors
    return output, errors


def _requests(log: Path) -> list[str]:
    """Return the requests of the net log that a page started: those of the browser itself have no origin."""
    text = log.read_text().rstrip()
    events = json.loads(text if text.endswith("}") else text.rstrip(",") + "]}")["events"]
    parameters = [event.get("params", {}) for event in events]
    urls = {one.get("url", "") for one in parameters if one.get("initiator", "not an origin") != "not an origin"}
    return sorted(url for url in urls if not url.startswith(("file:", "data:")))


def on_phone(page: str) -> str:
    """Return a page that shows this one in a frame as wide as a phone; a script finds it as `phone.contentDocument`.
    Chromium's own windows are wider.
    """
    policy = '<meta http-equiv="Content-Security-Policy" content="none">'
    inner = escape(re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page))
    frame = f'<iframe id="phone" style="width:390px;height:844px;border:0" srcdoc="{inner}"></iframe>'
    return f"<!DOCTYPE html><html><head>{policy}</head><body>{frame}</body></html>"


def asked(page: str, script: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> object:
    """Return what a script finds in the page. The script belongs to the test, so it runs in a copy without the page's
    policy.
    """
    open_page, count = re.subn(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page)
    assert count == 1
    answer = (
        "<script>addEventListener('load', async () => {"
        f"const say = x => document.documentElement.setAttribute('data-answer', JSON.stringify(x));"
        f"try {{ {script} }} catch (error) {{ say({{error: String(error)}}); }}}});</script>"
    )
    seen = browse(open_page.replace("</body>", answer + "</body>"), width=width, height=height, dark=dark)
    found = re.search(r'<html[^>]*data-answer="([^"]*)"', seen.tree)
    assert found, seen.console
    return json.loads(unescape(found[1]))
