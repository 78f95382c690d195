// Tries all of ATTEMPTS, by name, and tells REPORT how each ended.
//
// "blocked": the browser gave the page nothing. "opaque": something came that a page cannot look into.
// Anything else is what the page could see.

const soon = (promise) =>
  Promise.race([promise, new Promise((resolve) => setTimeout(resolve, 8000, "silent"))]);

const place = (name) => document.body.appendChild(document.createElement(name));

const ways = {
  async fetch({ url, init }) {
    try {
      const answer = await fetch(url, init);
      return answer.type === "opaque" ? "opaque" : `${answer.status} ${await answer.text()}`;
    } catch {
      return "blocked";
    }
  },

  element({ name, url }) {
    const element = place(name);
    return new Promise((resolve) => {
      element.onload = () => resolve("loaded");
      element.onerror = () => resolve("blocked");
      element.src = url;
    });
  },

  form({ url, body }) {
    const frame = document.createElement("iframe");
    frame.name = url;
    document.body.append(frame);
    const form = place("form");
    Object.assign(form, { action: url, method: "post", enctype: "text/plain", target: url });
    const field = form.appendChild(document.createElement("input"));
    // "=" and the end of the line come behind the name: the body is still JSON.
    Object.assign(field, { name: body.slice(0, -1) + ',"x":"', value: '"}' });
    return new Promise((resolve) => {
      frame.onload = () => {
        try {
          resolve(frame.contentWindow.document.body.innerText);
        } catch {
          resolve("blocked");
        }
      };
      form.submit();
    });
  },

  socket({ url }) {
    return new Promise((resolve) => {
      const socket = new WebSocket(url);
      socket.onopen = () => resolve("open");
      socket.onerror = () => resolve("blocked");
    });
  },
};

(async () => {
  for (const url of FRAMES) place("iframe").src = url;
  const ends = Object.entries(ATTEMPTS).map(async ([name, each]) => [name, await soon(ways[each.way](each))]);
  const body = JSON.stringify({ page: PAGE, ends: Object.fromEntries(await Promise.all(ends)) });
  await fetch(REPORT, { method: "POST", mode: "no-cors", body });
})();
