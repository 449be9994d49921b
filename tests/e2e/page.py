# SPDX-License-Identifier: Apache-2.0
"""The page at / in a headless Chromium: asks, reads the streamed answer, stops one, goes
by keyboard and by phone. Prints `ok NAME` or `not ok NAME`.

    page.py URL [FOLDER FOR PICTURES]
"""
import json
import sys
import time
from urllib.parse import urlsplit

from browser import Browser, find

# Answers of small models are short: questions that need a long one ask the server to go
# on. What no question makes a model say for certain is a recorded stream. Everything else
# is what the page sends by itself.
BETWEEN = """
const real = window.fetch;
const record = RECORDED;
window.sent = [];
window.fetch = (url, options) => {
  if (!options || options.method !== "POST") return real(url, options);
  const body = JSON.parse(options.body), last = body.messages[body.messages.length - 1];
  window.sent.push(body);
  if (record[last.content]) {
    return Promise.resolve(new Response(new ReadableStream({ async start(to) {
      for (const bytes of new TextEncoder().encode(record[last.content]).toString()
          .split(",")) to.enqueue(new Uint8Array([bytes])); /* one at a time */
      to.close();
    } }), { headers: { "Content-Type": "text/event-stream" } }));
  }
  if (options.body.includes("without end")) {
    body.ignore_eos = true;
    body.max_tokens = 1000;
    options = { ...options, body: JSON.stringify(body) };
  }
  return real(url, options);
};"""


def recorded(*deltas, end="data: [DONE]\n\n"):
    """An answer as a server would send it."""
    chunks = [d if "error" in d else {"choices": [{"index": 0, "delta": d}]}
              for d in deltas]
    return "".join(f": keep-alive\n\ndata: {json.dumps(c, ensure_ascii=False)}\n\n"
                   for c in chunks) + end


def call(index, **function):
    """A piece of a tool call."""
    piece = {"index": index, "function": function}
    if "name" in function:
        piece.update(id=f"call_{index}", type="function")
    return {"tool_calls": [piece]}


RECORDED = {
    "Think": recorded({"role": "assistant", "reasoning_content": "First \u2026 "},
                      {"reasoning": "then."}, {"content": "Na\u00efve \u2603 **done**\n"},
                      {"content": "```c\nint x = 1 < 2;\n```\nand `<b>code</b>`"}),
    "Call": recorded(call(0, name="weather", arguments=""),
                     call(0, arguments='{"city": "Pa'), call(0, arguments='ris"}'),
                     call(1, name="clock", arguments="{}")),
    "17 degrees": recorded({"content": "It is warm."}),
    "Fail": recorded({"content": "half an ans"}, {"error": {"message": "two engines died"}}),
    "Cut": recorded({"content": "half an ans"}, end=""),
}

ANSWERS = "document.querySelectorAll('article.assistant')"
LAST = f"{ANSWERS}[{ANSWERS}.length - 1]"
IDLE = "document.querySelector('#stop').hidden"
WIDE = "document.documentElement.scrollWidth > document.documentElement.clientWidth"


class Test:
    """Checks over one browser."""

    def __init__(self, browser, url, pictures):
        self.b, self.url, self.pictures, self.bad = browser, url, pictures, 0

    def check(self, name, good, detail=""):
        """One line of the result."""
        self.bad += not good
        print(f"{'ok' if good else 'not ok'} {name}{'' if good else f'  {detail}'}")

    def picture(self, name):
        """A picture, if they are wanted."""
        if self.pictures:
            self.b.picture(f"{self.pictures}/{name}.png")

    def ask(self, text):
        """Types a question and sends it with Enter."""
        self.b.js("document.querySelector('#question').focus()")
        self.b.type(text)
        self.b.press("Enter")

    def opening(self):
        """Before anything is asked."""
        b = self.b
        self.check("opens", b.js("document.querySelector('h1').textContent") == "tandem")
        self.check("becomes_ready",
                   b.wait("document.querySelector('#state').className === 'ready'", 60))
        self.check("no_startup_left", b.js("document.querySelector('#startup').hidden"))
        self.check("names_model", b.js("document.querySelector('#model').textContent"))
        self.check("live_numbers", b.wait(
            "/running.*waiting.*tokens.s.*cache/.test("
            "document.querySelector('#live').textContent)"))
        self.check("starts_in_question",
                   b.js("document.activeElement.id") == "question")
        self.picture("1-open")

    def answering(self):
        """A question, its answer piece by piece."""
        b = self.b
        self.ask("What does the word lighthouse mean?")
        self.check("shows_question",
                   b.js("document.querySelector('article.user').textContent").startswith(
                       "What does"))
        self.check("question_is_emptied",
                   b.js("document.querySelector('#question').value") == "")
        self.check("answers", b.wait(f"{ANSWERS}.length === 1 && {IDLE} && "
                                     f"{LAST}.querySelector('.answer').textContent.length > 10"),
                   b.js(f"{LAST} && {LAST}.textContent"))
        foot = b.js(f"{LAST}.querySelector('.foot').textContent")
        self.check("counts_tokens", "tokens/s" in foot and "first after" in foot, foot)
        self.check("no_error", b.js(f"{LAST}.querySelector('.error').hidden"))
        self.check("focus_stays", b.js("document.activeElement.id") == "question")
        text = b.js(f"{LAST}.textContent")
        self.check("no_think_tags", "think>" not in text, text)
        self.picture("2-answer")

    def stopping(self):
        """A long answer that is stopped, by key and by button; the next one works."""
        b = self.b
        for way in ("escape", "button"):
            self.ask(f"Go on without end, {way}")
            streams = b.wait(f"{LAST}.querySelector('.answer').textContent.length > 30")
            first = b.js(f"{LAST}.querySelector('.answer').textContent.length")
            grows = b.wait(f"{LAST}.querySelector('.answer').textContent.length > {first}")
            self.check(f"streams_{way}", streams and grows and not b.js(IDLE))
            if way == "escape":
                self.picture("3-streaming")
                b.press("Escape")
            else:
                b.js("document.querySelector('#stop').focus()")
                b.press("Enter")
            self.check(f"stops_by_{way}", b.wait(IDLE, 5) and "stopped" in b.js(
                f"{LAST}.querySelector('.foot').textContent"))
        self.check("focus_returns", b.js("document.activeElement.id") == "question")
        self.check("server_is_idle_again", b.wait(
            "/^0 running/.test(document.querySelector('#live').textContent)", 10),
            b.js("document.querySelector('#live').textContent"))

    def settings(self):
        """Settings go with the question; a wrong one is said."""
        b = self.b
        b.js("document.querySelector('#new').click()")
        self.check("new_conversation", b.js(f"{ANSWERS}.length") == 0)
        b.js("document.querySelector('#gear').focus()")
        b.press("Enter")
        self.check("settings_open", b.js("document.activeElement.id") == "system" and
                   b.js("document.querySelector('#gear').ariaExpanded") == "true")
        b.type("Be short.")
        for field, value in (("temperature", "0"), ("top_k", "20"), ("max_tokens", "7"),
                             ("seed", "11")):
            b.js(f"document.querySelector('#{field}').focus()")
            b.type(value)
        b.js("document.querySelector('#thinking').value = 'off'")
        self.picture("4-settings")
        b.press("Escape")
        self.check("settings_close", b.js("document.querySelector('#settings').hidden"))
        self.ask("What does the word boat mean?")
        b.wait(f"{ANSWERS}.length === 1 && {IDLE}")
        sent = b.js("window.sent[window.sent.length - 1]")
        self.check("settings_sent", (sent["temperature"], sent["top_k"], sent["max_tokens"],
                                     sent["seed"], sent["chat_template_kwargs"]) ==
                   (0, 20, 7, 11, {"enable_thinking": False}), sent)
        self.check("system_first", sent["messages"][0] == {"role": "system",
                                                            "content": "Be short."})
        self.check("cut_is_said", "cut at the token limit" in b.js(f"{LAST}.textContent"),
                   b.js(f"{LAST}.textContent"))
        b.js("document.querySelector('#temperature').value = '9'")
        self.ask("Once more")
        self.check("wrong_setting_said", b.wait(
            f"{IDLE} && {LAST}.querySelector('.error').textContent.startsWith("
            "'Temperature: ')") and b.js("document.activeElement.id") == "temperature")
        b.js("document.querySelector('#reset').click()")
        b.press("Escape")

    def refusing(self):
        """What the server refuses is said in its words."""
        b = self.b
        b.js("document.querySelector('#tools').value = '[{\"type\": 5}]'")
        self.ask("What may I refuse?")
        self.check("refusal_said", b.wait(
            f"{IDLE} && !{LAST}.querySelector('.error').hidden &&"
            f"/tools|request/.test({LAST}.querySelector('.error').textContent)"),
            b.js(f"{LAST}.textContent"))
        self.picture("5-refused")
        b.js("document.querySelector('#reset').click()")

    def parts(self):
        """Reasoning, tool calls, and streams that end badly."""
        b = self.b
        self.ask("Think")
        b.wait(IDLE)
        self.check("reasoning_folded", b.js(
            f"!{LAST}.querySelector('details').hidden && !{LAST}.querySelector('details')"
            f".open && /^Reasoning, /.test({LAST}.querySelector('summary').textContent)"))
        self.check("reasoning_text", b.js(
            f"{LAST}.querySelector('details .text').textContent") == "First \u2026 then.")
        self.check("text_is_drawn", b.js(f"{LAST}.querySelector('.answer').innerHTML") ==
                   "Na\u00efve \u2603 <strong>done</strong>"
                   "<pre tabindex=\"0\"><code>int x = 1 &lt; 2;\n</code></pre>"
                   "and <code>&lt;b&gt;code&lt;/b&gt;</code>",
                   b.js(f"{LAST}.querySelector('.answer').innerHTML"))
        self.ask("Call")
        b.wait(IDLE)
        calls = b.js(f"[...{LAST}.querySelectorAll('.call')].map(c => c.textContent)")
        self.check("calls_are_shown", len(calls) == 2 and "Calls weather" in calls[0] and
                   '"city": "Paris"' in calls[0] and "Calls clock" in calls[1], calls)
        self.picture("6-parts")
        b.js(f"{LAST}.querySelectorAll('.call textarea')[1].focus()")
        b.type("17 degrees")
        b.js(f"{LAST}.querySelectorAll('.call textarea')[0].focus()")
        b.type("warm")
        b.js(f"[...{LAST}.querySelectorAll('button')].find("
             "e => e.textContent === 'Send results').click()")
        b.wait(f"{IDLE} && {LAST}.textContent.includes('It is warm.')")
        sent = b.js("window.sent[window.sent.length - 1].messages.slice(-3)")
        self.check("results_are_sent", [m["role"] for m in sent] ==
                   ["assistant", "tool", "tool"] and
                   sent[0]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'
                   and sent[1]["tool_call_id"] == "call_0" and sent[1]["content"] == "warm",
                   sent)
        for text, words in (("Fail", "two engines died"), ("Cut", "ended before")):
            self.ask(text)
            b.wait(IDLE)
            self.check(f"{text.lower()}_is_said", words in b.js(
                f"{LAST}.querySelector('.error').textContent") and "half an ans" in b.js(
                    f"{LAST}.querySelector('.answer').textContent"))
        b.js("document.querySelector('#new').click()")

    def startup(self):
        """The view of a start, of a lost engine, and of no server at all."""
        b = self.b
        state = {"state": "starting", "phase": "load", "bytes": 38.2 * 2**30,
                 "of": 57.6 * 2**30, "rate": 5.1e9, "seconds_left": 4, "error": None,
                 "memory": {"total": 2**37, "available": 2**36}}
        b.js("looking = true")  # the status is not asked for meanwhile
        time.sleep(0.3)
        b.js(f"showStartup({json.dumps(state)})")
        words = b.js("document.querySelector('#startup').innerText")
        self.check("start_is_shown", all(w in words for w in (
            "reading the weights", "38.2 GiB of 57.6 GiB", "5.10 GB/s", "4 s left")), words)
        self.check("start_has_a_bar",
                   abs(b.js("document.querySelector('#bar').value") - 38.2 / 57.6) < 0.01)
        self.picture("7-startup")
        state.update(state="lost", retry_in=3, error={
            "code": "peer-lost", "what": "the engine was killed", "why": "out of memory",
            "fix": "use less"})
        b.js(f"showStartup({json.dumps(state)})")
        words = b.js("document.querySelector('#startup').innerText")
        self.check("loss_is_shown", "is started again in 3 s" in words and
                   "the engine was killed. out of memory. use less" in words, words)
        b.js("looking = false")
        self.check("ready_again",
                   b.wait("document.querySelector('#state').className === 'ready'"))

    def phone(self):
        """Small, light and dark."""
        b = self.b
        b.size(360, 640, dark=True)
        self.check("phone_no_sideways", not b.js(WIDE))
        self.picture("8-phone")
        b.js("document.querySelector('#gear').click()")
        self.check("phone_settings_no_sideways", not b.js(WIDE))
        self.picture("9-phone-settings")
        b.press("Escape")
        b.size(320, 480)
        self.check("narrow_no_sideways", not b.js(WIDE))
        self.check("question_in_sight", b.js(
            "document.querySelector('#send').getBoundingClientRect().bottom <= innerHeight"))

    def access(self):
        """Names for all controls, keys for all of them."""
        b = self.b
        b.size(1000, 700)
        nameless = b.js(
            "[...document.querySelectorAll('input, select, textarea')]"
            ".filter(e => !e.labels.length && !e.ariaLabel).map(e => e.id)")
        self.check("fields_have_labels", nameless == [], nameless)
        b.js("document.querySelector('#question').focus()")
        b.type("one")
        b.press("Enter", shift=True)
        self.check("shift_enter_is_a_line",
                   b.js("document.querySelector('#question').value") == "one\n")
        b.js("document.querySelector('#question').value = ''")
        seen = []
        for _ in range(4):
            b.press("Tab")
            seen.append(b.js("document.activeElement.id"))
        self.check("tab_reaches", {"send", "gear"} <= set(seen) or "new" in seen, seen)

    def outside(self):
        """Nothing was asked of any other host, nothing went wrong unseen."""
        host = urlsplit(self.url).netloc
        strangers = [u for u in self.b.requests
                     if urlsplit(u).netloc != host and not u.startswith(("data:", "about:"))]
        self.check("no_outside_request", strangers == [], strangers)
        bad = [c for c in self.b.complaints if "status of 400" not in c]
        self.check("no_complaints", bad == [], bad)


def main():
    if not find():
        print("skip page: chromium is not installed")
        return 0
    url = sys.argv[1].rstrip("/") + "/"
    pictures = sys.argv[2] if len(sys.argv) > 2 else None
    with Browser() as b:
        b.call("Page.addScriptToEvaluateOnNewDocument", source=BETWEEN.replace(
            "RECORDED", json.dumps(RECORDED)))
        b.size(1000, 700)
        b.open(url)
        t = Test(b, url, pictures)
        for part in (t.opening, t.answering, t.stopping, t.settings, t.refusing, t.parts,
                     t.startup, t.phone, t.access, t.outside):
            part()
    return 1 if t.bad else 0


if __name__ == "__main__":
    sys.exit(main())
