// What is wrong with the panels that a page shows. Grafana's pages differ from version to version: where there are
// several selectors, they are of 9, 10 and 11 on.
(noData) => {
  const panelsOf = '[data-panelid], [data-viz-panel-key]';
  const errors = '[data-testid="data-testid Panel status error"], [aria-label="Panel status"], [data-testid="data-testid Panel data error message"], .panel-info-corner--error';
  const loadings = '[aria-label="Panel loading bar"], [aria-label="Loading indicator"], .panel-loading';

  const title = (panel) => {
    const header = panel.querySelector('[data-testid^="data-testid Panel header "]');
    if (header) return header.dataset.testid.slice('data-testid Panel header '.length);
    const section = panel.querySelector('[aria-label$=" panel"]');
    if (section) return section.getAttribute('aria-label').slice(0, -' panel'.length);
    return panel.querySelector('h2, h6, .panel-title')?.textContent.trim() || '';
  };
  const visible = (el) => el.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const shown = (text) => text.length > 80 ? text.slice(0, 79) + '…' : text;

  // clipped says how a text is cut by an element around it within the panel.
  const clipped = (node, panel) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width < 1 || box.height < 1) return '';
    let vertical = true;
    for (let el = node.parentElement; el; el = el.parentElement) {
      const style = getComputedStyle(el);
      if (style.display !== 'inline' && (style.overflowX !== 'visible' || style.overflowY !== 'visible')) {
        const clip = el.getBoundingClientRect();
        if (clip.width <= 2 || clip.height <= 2) return ''; // for screen readers only
        const scrolls = (overflow) => overflow === 'auto' || overflow === 'scroll';
        if (vertical && scrolls(style.overflowY) && (box.bottom > clip.bottom + 1 || box.top < clip.top - 1)) vertical = false;
        if (style.overflowX !== 'visible' && (box.right > clip.right + 1 || box.left < clip.left - 1)) {
          return scrolls(style.overflowX) ? 'outside' : 'cut';
        }
        if (vertical && style.overflowY !== 'visible' && (box.bottom > clip.bottom + 3 || box.top < clip.top - 3)) return 'cut';
      }
      if (el === panel) break;
    }
    return '';
  };

  const overlap = (a, b) => {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    const area = (r) => (r.right - r.left) * (r.bottom - r.top);
    return width > 0 && height > 0 && width * height > 0.2 * Math.min(area(a), area(b));
  };

  const findings = [];
  let loading = 0;
  const all = [...document.querySelectorAll(panelsOf)].filter((p) => !p.parentElement.closest(panelsOf) && visible(p));
  const texts = [];
  let panels = 0, bottom = 0;
  for (const panel of all) {
    bottom = Math.max(bottom, panel.getBoundingClientRect().bottom);
    const name = title(panel);
    const tell = (what, text) => {
      if (!findings.some((f) => f.panel === name && f.what === what && f.text === shown(text))) findings.push({ panel: name, what, text: shown(text) });
    };
    if (panel.querySelector('.dashboard-row, [data-testid^="data-testid dashboard-row"], [data-testid^="dashboard-row"]')) continue;
    panels++;
    loading += panel.querySelectorAll(loadings).length;
    if (!panel.textContent.trim()) loading++; // not drawn before it is scrolled to
    for (const e of panel.querySelectorAll(errors)) if (visible(e)) tell('error', e.getAttribute('aria-label') || e.textContent);
    const judge = (text) => {
      if (/-∞/.test(text)) tell('-∞', text);
      if (/(^|[^A-Za-z])NaN([^A-Za-z]|$)/.test(text)) tell('NaN', text);
      if (noData.includes(text)) tell('empty', text);
    };
    const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const text = node.textContent.trim();
      if (!text || /^(style|script|title|noscript)$/i.test(node.parentElement.localName) || !visible(node.parentElement)) continue;
      texts.push(text);
      judge(text);
      const how = clipped(node, panel);
      if (how) tell(how, text);
    }
    for (const canvas of panel.querySelectorAll('canvas')) {
      // The small graphs behind numbers draw an axis beyond their edge, which nobody sees.
      const within = (t) => t.right > 0 && t.left < canvas.width && t.bottom > 0 && t.top < canvas.height;
      const drawn = (window.plumblineDrawn ? window.plumblineDrawn(canvas) : []).filter(within);
      for (const [i, one] of drawn.entries()) {
        texts.push(one.text);
        judge(one.text);
        // An axis' last number is centred at its end, whatever the graph.
        const last = one.centred && (one.left + one.right) / 2 <= canvas.width;
        if (one.left < -2 || one.right > canvas.width + 2 && !last || one.top < -2 || one.bottom > canvas.height + 2) tell('cut', one.text);
        for (const other of drawn.slice(i + 1)) if (overlap(one, other) && one.text !== other.text) tell('covered', one.text + ' and ' + other.text);
      }
    }
  }
  return { panels, loading, bottom: Math.ceil(bottom), signature: texts.join('\n'), findings };
};
