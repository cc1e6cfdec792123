// Runs before a page's own scripts: graphs draw their texts on canvases, where nobody could find them afterwards.
(() => {
  const drawn = new WeakMap();
  const proto = CanvasRenderingContext2D.prototype;
  const { fillText, clearRect } = proto;
  proto.fillText = function (text, x, y, ...more) {
    const m = this.measureText(text);
    const corner = (dx, dy) => this.getTransform().transformPoint(new DOMPoint(x + dx, y + dy));
    const a = corner(-m.actualBoundingBoxLeft, -m.actualBoundingBoxAscent);
    const b = corner(m.actualBoundingBoxRight, m.actualBoundingBoxDescent);
    if (!drawn.has(this.canvas)) drawn.set(this.canvas, []);
    drawn.get(this.canvas).push({
      text: String(text), centred: this.textAlign === 'center', left: Math.min(a.x, b.x), right: Math.max(a.x, b.x), top: Math.min(a.y, b.y), bottom: Math.max(a.y, b.y),
    });
    return fillText.call(this, text, x, y, ...more);
  };
  proto.clearRect = function (x, y, width, height) {
    if (width >= this.canvas.width && height >= this.canvas.height) drawn.delete(this.canvas);
    return clearRect.call(this, x, y, width, height);
  };
  // A canvas that is given a size, be it the same, is empty.
  for (const side of ['width', 'height']) {
    const own = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, side);
    Object.defineProperty(HTMLCanvasElement.prototype, side, { ...own, set(value) { drawn.delete(this); own.set.call(this, value); } });
  }
  window.plumblineDrawn = (canvas) => drawn.get(canvas) || [];
})();
