/* Browsers start no workers for pages that were opened as files: the search runs in a hidden frame there. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.inside.document.createElement("script");
      script.src = url;
      script.onload = () => this.started();
      this.inside.document.documentElement.append(script);
    }

    started() {
      const asked = this.waiting;
      this.waiting = null;
      asked.forEach((data) => this.postMessage(data));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
    }
  };
}
